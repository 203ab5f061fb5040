#pragma once
// Which instructions oneDNN uses.
#include <dnnl.hpp>

namespace tfm::kernels {

// Whether oneDNN finds these instructions of x86-64, and ONEDNN_MAX_CPU_ISA does not hide them. On
// other processors its bits mean others: on Arm those of AVX2 are set for SVE.
inline bool onednn_has([[maybe_unused]] dnnl::cpu_isa isa) {
#ifdef __x86_64__
  const int wanted = static_cast<int>(isa);
  return (static_cast<int>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
#else
  return false;
#endif
}

}  // namespace tfm::kernels
