#pragma once
// Products of bf16 tiles with float sums, in the calling thread, by AMX or AVX512-BF16: only where
// multiplies_natively<bf16>(). Their instructions add the products of two neighbouring terms, so
// that factors are taken in pairs of terms.
#include <cstdint>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "core/half.h"

namespace tfm::kernels {

// Compiled for these instruction sets whatever -march says; called only where the processor has
// them.
#define TFM_DOT_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

// Terms 2p and 2p + 1 of row i are the two elements at data + i * row + p * pair.
struct DotRows {
  const bf16* data;
  std::int64_t row, pair;
};
// (pairs, stride) words: that of column j and pair p holds term 2p in its low half, 2p + 1 above.
struct DotColumns {
  const std::uint32_t* data;
  std::int64_t stride;  // at least n in whole vectors of 16
};

// c (m, n) = a b, or added to c. Up to 15 columns after the last one are written, too.
void dot_product(std::int64_t m, std::int64_t n, std::int64_t pairs, DotRows a, DotColumns b,
                 float* c, std::int64_t ldc, bool accumulate);

// The columns of a factor from x (rows, cols): pairs of rows, an odd last one with zeros.
void pair_rows(const bf16* x, std::int64_t x_stride, std::int64_t rows, std::int64_t cols,
               std::uint32_t* out, std::int64_t stride);
// From the transpose of x (rows, cols): pairs of columns, of which there is an even number.
void pair_columns(const bf16* x, std::int64_t x_stride, std::int64_t rows, std::int64_t cols,
                  std::uint32_t* out, std::int64_t stride);

}  // namespace tfm::kernels
