#pragma once
// Products by oneDNN's matmul primitive.
#include "kernels/gemm.h"

namespace tfm::kernels {

// As gemm(), by `threads` threads, of at least one row, column and term. False, and nothing is
// done, where oneDNN has only its reference implementation, a wrong one, or one that takes more
// than 32 MiB of scratch memory, and for a bias with an alpha other than 1.
template <class T, class C>
bool matmul(const GemmArgs<T, C>& g, int threads);

}  // namespace tfm::kernels
