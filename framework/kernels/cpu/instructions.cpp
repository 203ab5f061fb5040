#include "kernels/instructions.h"

#include "kernels/cpu/amx.h"
#include "kernels/cpu/half_gemm.h"
#include "kernels/cpu/onednn_isa.h"
#include "kernels/cpu/simd.h"

namespace tfm::kernels {

std::string instructions(DType precision) {
#if defined(TFM_AVX512)
  const std::string own = "AVX-512";
#elif defined(__AVX2__)
  const std::string own = "AVX2";
#elif defined(__ARM_NEON)
  const std::string own = "NEON";
#else
  const std::string own = std::to_string(kVectorBytes * 8) + "-bit vectors";
#endif
  using Isa = dnnl::cpu_isa;
  const bool half = precision == DType::bf16  ? multiplies_natively<bf16>()
                    : precision == DType::f16 ? multiplies_natively<f16>()
                                              : false;
  const std::string products = precision == DType::bf16 && half && has_amx() ? "AMX"
                               : half ? precision == DType::bf16 ? "AVX512-BF16" : "AVX512-FP16"
                               : onednn_has(Isa::avx512_core) ? "AVX-512"
                               : onednn_has(Isa::avx2)        ? "AVX2"
                                                              : own;
  return products == own ? own : own + ", products by " + products;
}

}  // namespace tfm::kernels
