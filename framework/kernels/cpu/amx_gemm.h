#pragma once
// Products of bf16 matrices by AMX. Operands are packed into tiles as they are read; sums are held
// in float, in an order that depends on k alone: neither the number of threads nor the rest of a
// shape moves a bit.
#include "kernels/cpu/amx.h"
#include "kernels/gemm.h"

namespace tfm::kernels {

// As gemm(), only where has_amx().
template <class C>
void amx_gemm(cpu::Stream&, const GemmArgs<bf16, C>&);

}  // namespace tfm::kernels
