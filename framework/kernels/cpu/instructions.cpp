#include "kernels/instructions.h"

#include <dnnl.hpp>

#include "kernels/cpu/amx.h"
#include "kernels/cpu/simd.h"

namespace tfm::kernels {

std::string instructions() {
#if defined(TFM_AVX512)
  const std::string own = "AVX-512";
#elif defined(__AVX2__)
  const std::string own = "AVX2";
#else
  const std::string own = std::to_string(kVectorBytes * 8) + "-bit vectors";
#endif
  const auto has = [](dnnl::cpu_isa isa) {
    return (static_cast<int>(dnnl::get_effective_cpu_isa()) & static_cast<int>(isa)) ==
           static_cast<int>(isa);
  };
  const std::string products = has_amx()                              ? "AMX"
                               : has(dnnl::cpu_isa::avx512_core_bf16) ? "AVX512-BF16"
                               : has(dnnl::cpu_isa::avx512_core)      ? "AVX-512"
                               : has(dnnl::cpu_isa::avx2)             ? "AVX2"
                                                                      : own;
  return products == own ? own : own + ", products by " + products;
}

}  // namespace tfm::kernels
