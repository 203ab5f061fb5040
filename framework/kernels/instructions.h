#pragma once
#include <string>

#include "core/dtype.h"

namespace tfm::kernels {

// The instructions that kernels for CPUs use on this processor, such as "AVX-512, products by AMX".
// `precision`: of the factors of products. Equal bits need equal instructions. The environment
// variables GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F,-AVX2 and ONEDNN_MAX_CPU_ISA=AVX512_CORE, AVX2
// hide what a processor has.
std::string instructions(DType precision = DType::bf16);

}  // namespace tfm::kernels
