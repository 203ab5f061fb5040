#pragma once
// Products in fp32 by vector instructions, of factors that are packed, and converted meanwhile. The
// bits do not depend on the number of threads.
#include "kernels/gemm.h"

namespace tfm::kernels {

// Whether this library has float_gemm(): where it was compiled with AVX-512.
bool has_float_gemm();

// Whether float_gemm() is faster than oneDNN: with AVX-512, for gradients of weights of 256 to 767
// columns. Where 1/m + 1/n >= 0.00196 oneDNN multiplies without packing A, whose terms then lie far
// apart if it is transposed.
bool float_gemm_takes(const GemmArgs<float>&);

// As gemm(), with float sums. Requires has_float_gemm().
template <class T, class C>
void float_gemm(cpu::Stream&, const GemmArgs<T, C>&);

}  // namespace tfm::kernels
