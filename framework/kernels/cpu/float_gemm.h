#pragma once
// Products in fp32 by vector instructions, of 16-bit factors that are converted as they are packed.
// The bits do not depend on the number of threads.
#include "kernels/gemm.h"

namespace tfm::kernels {

// Whether this library has float_gemm(): where it was compiled with AVX-512. With AVX2 (Zen 3) such
// a product ran at 0.8 to 1.06 times the rate of oneDNN's sgemm, so products convert before that.
bool has_float_gemm();

// As gemm(), with float sums. Requires has_float_gemm().
template <class T, class C>
void float_gemm(cpu::Stream&, const GemmArgs<T, C>&);

}  // namespace tfm::kernels
