#pragma once
// Instruction sets that oneDNN uses.
#include <dnnl.hpp>

namespace tfm::kernels {

// Whether oneDNN uses these x86-64 instructions: the processor has them, and ONEDNN_MAX_CPU_ISA
// does not hide them. False on other processors, where the bits mean something else: on Arm, SVE
// sets those of AVX2.
inline bool onednn_has([[maybe_unused]] dnnl::cpu_isa isa) {
#ifdef __x86_64__
  const int wanted = static_cast<int>(isa);
  return (static_cast<int>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
#else
  return false;
#endif
}

}  // namespace tfm::kernels
