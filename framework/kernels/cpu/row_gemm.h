#pragma once
// Products of a few rows with weights, (out, in), as in decoding: they read the weights once, as
// they lie. An element of C has the same bits whatever the number of rows and of threads.
#include "kernels/gemm.h"

namespace tfm::kernels {

// Rows up to which they are faster than products that pack their factors, and than those by
// instructions for 16-bit factors.
inline constexpr std::int64_t kFewRows = 16, kFewHalfRows = 4;
// Least elements of the weights. With fewer, which may lie in a cache, oneDNN is up to six times as
// fast (fp32).
inline constexpr std::int64_t kFewRowsFrom = 1 << 18;

template <class T, class C>
bool row_gemm_takes(const GemmArgs<T, C>& g, std::int64_t most_rows) {
  return !g.transpose_a && g.transpose_b && g.m <= most_rows && g.n * g.k >= kFewRowsFrom;
}

// As gemm(), with float sums, of factors that row_gemm_takes().
template <class T, class C>
void row_gemm(cpu::Stream&, const GemmArgs<T, C>&);

}  // namespace tfm::kernels
