#pragma once
// Products of bf16 matrices by AMX. Operands are packed into tiles as they are read. Sums are held
// in float, in an order that depends only on k, so the bits do not depend on the number of threads
// or on m and n.
#include "kernels/cpu/amx.h"
#include "kernels/gemm.h"

namespace tfm::kernels {

// As gemm(). Requires has_amx().
template <class C>
void amx_gemm(cpu::Stream&, const GemmArgs<bf16, C>&);

}  // namespace tfm::kernels
