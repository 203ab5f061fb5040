#pragma once
// Products of 16-bit matrices on CPUs: by 16-bit instructions of the processor (bf16: AVX512-BF16
// or AMX; fp16: AVX512-FP16 or AMX), or in float if it has none.
#include "kernels/gemm.h"

namespace tfm::kernels {

// Whether the processor has instructions for products of type T that are faster than converting.
// ONEDNN_MAX_CPU_ISA can hide them, or ask for AVX512-BF16 where it is slower.
template <class T>
bool multiplies_natively();

// As gemm(); sums are held in float.
template <class T, class C>
void half_gemm(cpu::Stream&, const GemmArgs<T, C>&);
// The same, but converts blocks of the factors to float, for oneDNN.
template <class T, class C>
void half_gemm_by_conversion(cpu::Stream&, const GemmArgs<T, C>&);

}  // namespace tfm::kernels
