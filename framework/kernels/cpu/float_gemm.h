#pragma once
// Products in fp32 by vector instructions, of 16-bit factors that are converted as they are packed.
// The bits do not depend on the number of threads.
#include "kernels/gemm.h"

namespace tfm::kernels {

// Whether this library has float_gemm(): where it was compiled with AVX-512.
bool has_float_gemm();

// As gemm(), with float sums. Requires has_float_gemm().
template <class T, class C>
void float_gemm(cpu::Stream&, const GemmArgs<T, C>&);

}  // namespace tfm::kernels
