#include "kernels/cpu/rounded_product.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "kernels/cpu/dot_product.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"

namespace tfm::kernels {

#ifdef __x86_64__
namespace {

constexpr std::int64_t kPairs = 16;  // of a tile of dot_product.h

// Pairs of rows of x (rows, cols), times alpha, as words; zeros after the last row, `pairs` in all.
TFM_DOT_TARGET void pair_rounded(const float* x, std::int64_t x_stride, std::int64_t rows,
                                 std::int64_t cols, float alpha, std::uint32_t* out,
                                 std::int64_t stride, std::int64_t pairs) {
  alignas(64) static constexpr auto kOrder = [] {
    std::array<std::uint16_t, 32> order{};
    for (std::uint16_t i = 0; i < 32; ++i) order[i] = i / 2 + i % 2 * 16;
    return order;
  }();
  const __m512i order = _mm512_load_si512(kOrder.data());
  const __m512 factor = _mm512_set1_ps(alpha), zero = _mm512_setzero_ps();
  for (std::int64_t p = 0; p < pairs; ++p) {
    const float *low = x + 2 * p * x_stride, *high = low + x_stride;
    for (std::int64_t j = 0; j < cols; j += kDotWords) {
      const __m512 a = 2 * p < rows ? _mm512_mul_ps(_mm512_loadu_ps(low + j), factor) : zero,
                   b = 2 * p + 1 < rows ? _mm512_mul_ps(_mm512_loadu_ps(high + j), factor) : zero;
      const __m512i halves = (__m512i)_mm512_cvtne2ps_pbh(b, a);
      _mm512_storeu_si512(out + p * stride + j, _mm512_maskz_permutexvar_epi16(~0u, order, halves));
    }
  }
}

// Rows of x (rows, terms), times alpha; zeros up to `pairs` pairs of terms.
TFM_DOT_TARGET void rounded_rows(const float* x, std::int64_t x_stride, std::int64_t rows,
                                 std::int64_t terms, float alpha, bf16* out, std::int64_t stride,
                                 std::int64_t pairs) {
  const __m512 factor = _mm512_set1_ps(alpha);
  const auto part = [&](const float* from, std::int64_t left) TFM_DOT_TARGET {
    const std::int64_t n = std::clamp<std::int64_t>(left, 0, kDotWords);
    return _mm512_mul_ps(_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), from),
                         factor);
  };
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t t = 0; t < 2 * pairs; t += 2 * kDotWords) {
      const float* const from = x + r * x_stride + t;
      const __m512 low = part(from, terms - t),
                   high = part(from + kDotWords, terms - t - kDotWords);
      _mm512_storeu_si512(out + r * stride + t, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
}

}  // namespace

void rounded_product(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
                     std::int64_t row, std::int64_t term, const float* b, std::int64_t ldb,
                     float beta, float* c, std::int64_t ldc) {
  const std::int64_t pairs = round_up(ceil_div(k, 2), kPairs), across = padded(n),
                     along = padded(term == 1 ? pairs : m);
  auto* const right = scratch<std::uint32_t, struct RoundedRight>(pairs * across);
  auto* const left = scratch<std::uint32_t, struct RoundedLeft>((term == 1 ? m : pairs) * along);
  auto* const halves = reinterpret_cast<bf16*>(left);
  pair_rounded(b, ldb, k, n, 1, right, across, pairs);
  if (term == 1)
    rounded_rows(a, row, m, k, alpha, halves, 2 * along, pairs);
  else
    pair_rounded(a, term, k, m, alpha, left, along, pairs);
  for (std::int64_t i = 0; i < m && beta != 0 && beta != 1; ++i)
    for (std::int64_t j = 0; j < n; ++j) c[i * ldc + j] *= beta;
  const DotRows rows = term == 1 ? DotRows{halves, 2 * along, 2} : DotRows{halves, 2, 2 * along};
  dot_product(m, n, pairs, rows, {right, across}, c, ldc, beta != 0);
}
#else
void rounded_product(std::int64_t, std::int64_t, std::int64_t, float, const float*, std::int64_t,
                     std::int64_t, const float*, std::int64_t, float, float*, std::int64_t) {
  internal_error("this processor has no products of bf16");
}
#endif

}  // namespace tfm::kernels
