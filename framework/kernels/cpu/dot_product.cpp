#include "kernels/cpu/dot_product.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace tfm::kernels {
namespace {

std::uint32_t word(const bf16* p) {
  std::uint32_t w;
  std::memcpy(&w, p, sizeof w);
  return w;
}

#ifdef __x86_64__
// Compiled for these instruction sets whatever -march says; called only where the processor has
// them.
#define TFM_DOT_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

constexpr int kLanes16 = 16, kRows = 6, kVectors = 4;

template <int Rows, int Vectors>
TFM_DOT_TARGET void block(std::int64_t pairs, DotRows a, DotColumns b, float* c, std::int64_t ldc,
                          bool accumulate) {
  __m512 sum[Rows][Vectors];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j)
      sum[i][j] = accumulate ? _mm512_loadu_ps(c + i * ldc + j * kLanes16) : _mm512_setzero_ps();
  for (std::int64_t p = 0; p < pairs; ++p, a.data += a.pair, b.data += b.stride) {
    __m512i column[Vectors];
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) column[j] = _mm512_loadu_si512(b.data + j * kLanes16);
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      const __m512i row = _mm512_set1_epi32(static_cast<int>(word(a.data + i * a.row)));
#pragma GCC unroll 8
      for (int j = 0; j < Vectors; ++j)
        sum[i][j] = _mm512_dpbf16_ps(sum[i][j], (__m512bh)row, (__m512bh)column[j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) _mm512_storeu_ps(c + i * ldc + j * kLanes16, sum[i][j]);
}

template <int Vectors>
void columns(std::int64_t m, std::int64_t pairs, DotRows a, DotColumns b, float* c,
             std::int64_t ldc, bool accumulate) {
  const auto rows = [&]<int Rows>() {
    block<Rows, Vectors>(pairs, a, b, c, ldc, accumulate);
    a.data += Rows * a.row, c += Rows * ldc, m -= Rows;
  };
  while (m >= kRows) rows.template operator()<kRows>();
  if (m >= 4) rows.template operator()<4>();
  if (m >= 2) rows.template operator()<2>();
  if (m >= 1) rows.template operator()<1>();
}

// 16 x 16 words. Masks of all lanes: GCC 12 warns of undefined lanes without.
TFM_DOT_TARGET void transpose(const bf16* x, std::int64_t x_stride, std::uint32_t* out,
                              std::int64_t stride) {
  __m512i r[16], t[16];
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(x + i * x_stride);
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_maskz_unpacklo_epi32(0xFFFF, r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_maskz_unpackhi_epi32(0xFFFF, r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 2; ++j) {
      r[4 * i + 2 * j] = _mm512_maskz_unpacklo_epi64(0xFF, t[4 * i + j], t[4 * i + 2 + j]);
      r[4 * i + 2 * j + 1] = _mm512_maskz_unpackhi_epi64(0xFF, t[4 * i + j], t[4 * i + 2 + j]);
    }
  for (int i = 0; i < 4; ++i) {
    const __m512i a = _mm512_maskz_shuffle_i32x4(0xFFFF, r[i], r[4 + i], 0x88),
                  b = _mm512_maskz_shuffle_i32x4(0xFFFF, r[i], r[4 + i], 0xdd),
                  c = _mm512_maskz_shuffle_i32x4(0xFFFF, r[8 + i], r[12 + i], 0x88),
                  d = _mm512_maskz_shuffle_i32x4(0xFFFF, r[8 + i], r[12 + i], 0xdd);
    _mm512_storeu_si512(out + i * stride, _mm512_maskz_shuffle_i32x4(0xFFFF, a, c, 0x88));
    _mm512_storeu_si512(out + (8 + i) * stride, _mm512_maskz_shuffle_i32x4(0xFFFF, a, c, 0xdd));
    _mm512_storeu_si512(out + (4 + i) * stride, _mm512_maskz_shuffle_i32x4(0xFFFF, b, d, 0x88));
    _mm512_storeu_si512(out + (12 + i) * stride, _mm512_maskz_shuffle_i32x4(0xFFFF, b, d, 0xdd));
  }
}
#endif

}  // namespace

void dot_product(std::int64_t m, std::int64_t n, std::int64_t pairs, DotRows a, DotColumns b,
                 float* c, std::int64_t ldc, bool accumulate) {
#ifdef __x86_64__
  const auto vectors = [&]<int Vectors>() {
    columns<Vectors>(m, pairs, a, b, c, ldc, accumulate);
    constexpr std::int64_t width = Vectors * kLanes16;
    b.data += width, c += width, n -= width;
  };
  while (n > (kVectors - 1) * kLanes16) vectors.template operator()<kVectors>();
  if (n > 2 * kLanes16) vectors.template operator()<3>();
  if (n > kLanes16) vectors.template operator()<2>();
  if (n > 0) vectors.template operator()<1>();
#else
  (void)m, (void)n, (void)pairs, (void)a, (void)b, (void)c, (void)ldc, (void)accumulate;
  internal_error("this processor has no AVX512-BF16");
#endif
}

void pair_rows(const bf16* x, std::int64_t x_stride, std::int64_t rows, std::int64_t cols,
               std::uint32_t* out, std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; r += 2, out += stride) {
    const bf16 *low = x + r * x_stride, *high = low + x_stride;
    if (r + 1 < rows)
      for (std::int64_t i = 0; i < cols; ++i)
        out[i] = low[i].bits | static_cast<std::uint32_t>(high[i].bits) << 16;
    else
      for (std::int64_t i = 0; i < cols; ++i) out[i] = low[i].bits;
    std::fill(out + cols, out + stride, 0);
  }
}

void pair_columns(const bf16* x, std::int64_t x_stride, std::int64_t rows, std::int64_t cols,
                  std::uint32_t* out, std::int64_t stride) {
  const std::int64_t pairs = cols / 2;
  std::int64_t whole_rows = 0, whole_pairs = 0;
#ifdef __x86_64__
  whole_rows = rows / 16 * 16, whole_pairs = pairs / 16 * 16;
  for (std::int64_t r = 0; r < whole_rows; r += 16)
    for (std::int64_t p = 0; p < whole_pairs; p += 16)
      transpose(x + r * x_stride + 2 * p, x_stride, out + p * stride + r, stride);
#endif
  for (std::int64_t p = 0; p < pairs; ++p) {
    for (std::int64_t r = p < whole_pairs ? whole_rows : 0; r < rows; ++r)
      out[p * stride + r] = word(x + r * x_stride + 2 * p);
    std::fill(out + p * stride + rows, out + (p + 1) * stride, 0);
  }
}

}  // namespace tfm::kernels
