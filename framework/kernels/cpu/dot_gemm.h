#pragma once
// Products of bf16 matrices by AVX512-BF16. All threads together pack the right factor in pairs of
// terms. The left factor is read in place or, if transposed, packed in groups of rows. Sums are
// held in float, in an order that depends only on k, so the bits do not depend on the number of
// threads or on m and n.
#include "kernels/gemm.h"

namespace tfm::kernels {

// Whether dot_gemm() is faster than oneDNN: k is even, and the sizes are large enough for packing
// to pay off.
template <class C>
bool dot_gemm_takes(const GemmArgs<bf16, C>&);

// As gemm(). Requires an even k and multiplies_natively<bf16>(). With AMX, for which amx_gemm() is
// there, bits depend on the number of threads.
template <class C>
void dot_gemm(cpu::Stream&, const GemmArgs<bf16, C>&);

}  // namespace tfm::kernels
