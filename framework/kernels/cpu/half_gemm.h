#pragma once
// Products of 16-bit matrices on CPUs: by instructions of the processor where it has them for the
// type (bf16: AVX512-BF16 or AMX; fp16: AVX512-FP16 or AMX), else in float.
#include "kernels/gemm.h"

namespace tfm::kernels {

// Whether the processor multiplies elements of type T. ONEDNN_MAX_CPU_ISA hides instructions.
template <class T>
bool multiplies_natively();

// As gemm(); sums are held in float.
template <class T, class C>
void half_gemm(cpu::Stream&, const GemmArgs<T, C>&);
// The same by converting blocks of the factors to float.
template <class T, class C>
void half_gemm_by_conversion(cpu::Stream&, const GemmArgs<T, C>&);

}  // namespace tfm::kernels
