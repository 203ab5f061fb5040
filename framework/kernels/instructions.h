#pragma once
#include <string>

#include "core/dtype.h"

namespace tfm::kernels {

// Describes the instructions that CPU kernels use on this processor for products with factors of
// type `precision`, such as "AVX-512, products by AMX". Results are bitwise equal only with equal
// instructions. The environment variables GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F,-AVX2 and
// ONEDNN_MAX_CPU_ISA=AVX512_CORE or AVX2 hide instructions of the processor.
std::string instructions(DType precision = DType::bf16);

}  // namespace tfm::kernels
