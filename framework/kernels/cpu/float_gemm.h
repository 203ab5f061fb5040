#pragma once
// Gradients of weights in fp32 by AVX-512: C = alpha A^T B + beta C. Where 1/m + 1/n >= 0.00196
// oneDNN multiplies without packing A, whose terms then lie far apart. The bits do not depend on
// the number of threads.
#include "kernels/gemm.h"

namespace tfm::kernels {

// Whether float_gemm() takes the product, which a library compiled without AVX-512 never does.
bool float_gemm_takes(const GemmArgs<float>&);

// As gemm(). Requires a transposed left factor, a right one that is not, and AVX-512.
void float_gemm(cpu::Stream&, const GemmArgs<float>&);

}  // namespace tfm::kernels
