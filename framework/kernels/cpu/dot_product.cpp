#include "kernels/cpu/dot_product.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.h"
#include "kernels/cpu/amx.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/words.h"

namespace tfm::kernels {
namespace {

std::uint32_t word(const bf16* p) {
  std::uint32_t w;
  std::memcpy(&w, p, sizeof w);
  return w;
}

#ifdef __x86_64__
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

TFM_DOT_TARGET void transpose(const bf16* x, std::int64_t x_stride, std::uint32_t* out,
                              std::int64_t stride) {
  __m512i r[16];
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(x + i * x_stride);
  transpose_words(r);
  for (int i = 0; i < 16; ++i) _mm512_storeu_si512(out + i * stride, r[i]);
}

constexpr std::int64_t kAhead = 8;  // rows that are asked for before they are read

// Pairs of whole vectors of elements; how many.
TFM_DOT_TARGET std::int64_t interleave(const bf16* low, const bf16* high, std::int64_t n,
                                       std::int64_t ahead, std::uint32_t* out) {
  alignas(64) static constexpr auto kOrder = [] {
    std::array<std::uint16_t, 64> order{};
    for (std::uint16_t i = 0; i < 64; ++i) order[i] = i / 2 + i % 2 * 32;
    return order;
  }();
  const __m512i first = _mm512_load_si512(kOrder.data()),
                second = _mm512_load_si512(kOrder.data() + 32);
  std::int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    __builtin_prefetch(low + i + ahead);
    __builtin_prefetch(high + i + ahead);
    const __m512i a = _mm512_loadu_si512(low + i), b = _mm512_loadu_si512(high + i);
    _mm512_storeu_si512(out + i, _mm512_permutex2var_epi16(a, first, b));
    _mm512_storeu_si512(out + i + 16, _mm512_permutex2var_epi16(a, second, b));
  }
  return i;
}

constexpr std::int64_t kTilePairs = 16;  // pairs of terms, rows or columns of a tile

// One or two tiles of rows by one or two of columns.
template <int Rows, int Columns>
TFM_AMX_TARGET void tile_block(std::int64_t pairs, const bf16* a, std::int64_t a_row, DotColumns b,
                               float* c, std::int64_t ldc, bool accumulate) {
  const std::int64_t a_bytes = 2 * a_row, b_bytes = 4 * b.stride, c_bytes = 4 * ldc;
  float *c1 = c + kTilePairs, *c2 = c + kTilePairs * ldc, *c3 = c2 + kTilePairs;
  if (accumulate) {
    _tile_loadd(0, c, c_bytes);
    if (Columns > 1) _tile_loadd(1, c1, c_bytes);
    if (Rows > 1) _tile_loadd(2, c2, c_bytes);
    if (Rows > 1 && Columns > 1) _tile_loadd(3, c3, c_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (std::int64_t p = 0; p < pairs; p += kTilePairs) {
    _tile_loadd(4, a + 2 * p, a_bytes);
    _tile_loadd(6, b.data + p * b.stride, b_bytes);
    _tile_dpbf16ps(0, 4, 6);
    if (Columns > 1) {
      _tile_loadd(7, b.data + p * b.stride + kTilePairs, b_bytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    if (Rows > 1) {
      _tile_loadd(5, a + 2 * p + kTilePairs * a_row, a_bytes);
      _tile_dpbf16ps(2, 5, 6);
      if (Columns > 1) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, c, c_bytes);
  if (Columns > 1) _tile_stored(1, c1, c_bytes);
  if (Rows > 1) _tile_stored(2, c2, c_bytes);
  if (Rows > 1 && Columns > 1) _tile_stored(3, c3, c_bytes);
}

// Whole tiles of rows and of pairs; the pairs of a row are neighbours.
TFM_AMX_TARGET void tiles(std::int64_t m, std::int64_t n, std::int64_t pairs, const bf16* a,
                          std::int64_t a_row, DotColumns b, float* c, std::int64_t ldc,
                          bool accumulate) {
  const AmxTiles state;
  const auto rows = [&]<int Rows>(std::int64_t i) {
    const auto block = [&]<int Columns>(std::int64_t j) {
      tile_block<Rows, Columns>(pairs, a + i * a_row, a_row, {b.data + j, b.stride},
                                c + i * ldc + j, ldc, accumulate);
    };
    std::int64_t j = 0;
    for (; j + kTilePairs < n; j += 2 * kTilePairs) block.template operator()<2>(j);
    if (j < n) block.template operator()<1>(j);
  };
  std::int64_t i = 0;
  for (; i + kTilePairs < m; i += 2 * kTilePairs) rows.template operator()<2>(i);
  if (i < m) rows.template operator()<1>(i);
}

// The part of a product that tiles compute, its rows; the others are left.
std::int64_t tile_product(std::int64_t m, std::int64_t n, std::int64_t pairs, DotRows a,
                          DotColumns b, float* c, std::int64_t ldc, bool accumulate) {
  const std::int64_t rows = m / kTilePairs * kTilePairs;
  if (rows == 0 || pairs % kTilePairs || !has_amx()) return 0;
  if (a.pair != 2) {  // rows are neighbours
    auto* words = scratch<std::uint32_t, struct Transposed>(rows * pairs);
    for (std::int64_t p = 0; p < pairs; p += kTilePairs)
      for (std::int64_t r = 0; r < rows; r += kTilePairs)
        transpose(a.data + p * a.pair + r * a.row, a.pair, words + r * pairs + p, pairs);
    a = {reinterpret_cast<const bf16*>(words), 2 * pairs, 2};
  }
  tiles(rows, n, pairs, a.data, a.row, b, c, ldc, accumulate);
  return rows;
}
#endif

}  // namespace

void dot_product(std::int64_t m, std::int64_t n, std::int64_t pairs, DotRows a, DotColumns b,
                 float* c, std::int64_t ldc, bool accumulate) {
#ifdef __x86_64__
  const std::int64_t done = tile_product(m, n, pairs, a, b, c, ldc, accumulate);
  a.data += done * a.row, c += done * ldc, m -= done;
  if (m == 0) return;
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
    std::int64_t i = 0;
#ifdef __x86_64__
    if (r + 1 < rows) i = interleave(low, high, cols, kAhead * x_stride, out);
#endif
    if (r + 1 < rows)
      for (; i < cols; ++i) out[i] = low[i].bits | static_cast<std::uint32_t>(high[i].bits) << 16;
    else
      for (; i < cols; ++i) out[i] = low[i].bits;
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
