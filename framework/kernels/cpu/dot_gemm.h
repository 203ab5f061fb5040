#pragma once
// Products of bf16 matrices by AVX512-BF16: the right factor is packed in pairs of terms by all
// threads together, the left one read where it lies or, transposed, packed in groups of rows. Sums
// are held in float, in an order that depends on k alone: neither the number of threads nor the
// rest of a shape moves a bit.
#include "kernels/gemm.h"

namespace tfm::kernels {

// Whether dot_gemm() takes the product: an even number of terms, and enough rows for packing to
// pay.
template <class C>
bool dot_gemm_takes(const GemmArgs<bf16, C>&);

// As gemm(), only where dot_gemm_takes() it and multiplies_natively<bf16>().
template <class C>
void dot_gemm(cpu::Stream&, const GemmArgs<bf16, C>&);

}  // namespace tfm::kernels
