#pragma once
// Products of bf16 tiles with float sums by AMX or AVX512-BF16, in the calling thread. Requires
// multiplies_natively<bf16>(). The instructions add the products of two adjacent terms, so factors
// are given in pairs of terms.
#include <cstdint>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "core/half.h"

namespace tfm::kernels {

// Compiles a function for these instruction sets regardless of -march. Call it only if the
// processor has them.
#define TFM_DOT_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

// Left factor: terms 2p and 2p + 1 of row i are the two elements at data + i * row + p * pair.
struct DotRows {
  const bf16* data;
  std::int64_t row, pair;
};
// Right factor: (pairs, stride) words. The word of pair p and column j holds term 2p in its low
// half and term 2p + 1 in its high half.
struct DotColumns {
  const std::uint32_t* data;
  std::int64_t stride;  // at least n rounded up to a multiple of 16
};

inline constexpr std::int64_t kDotWords = 16;  // of a vector
// A stride of rows of so many words that avoids conflicts in cache sets.
constexpr std::int64_t padded(std::int64_t words) {
  return (words + kDotWords - 1) / kDotWords * kDotWords + kDotWords;
}

// c (m, n) = a b, or c += a b. Up to 15 columns after the last one are also written.
void dot_product(std::int64_t m, std::int64_t n, std::int64_t pairs, DotRows a, DotColumns b,
                 float* c, std::int64_t ldc, bool accumulate);

// Packs x (rows, cols) as a right factor: pairs of rows, the last of an odd number with zeros.
void pair_rows(const bf16* x, std::int64_t x_stride, std::int64_t rows, std::int64_t cols,
               std::uint32_t* out, std::int64_t stride);
// Packs the transpose of x (rows, cols) as a right factor: pairs of columns; cols must be even.
void pair_columns(const bf16* x, std::int64_t x_stride, std::int64_t rows, std::int64_t cols,
                  std::uint32_t* out, std::int64_t stride);

}  // namespace tfm::kernels
