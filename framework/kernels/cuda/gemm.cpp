// Matrix products: shapes for cuBLASLt (device/cuda/blas.h), and what it does not do.
#include "kernels/gemm.h"

#include <algorithm>
#include <type_traits>

#include "device/cuda/blas.h"
#include "device/cuda/stream.h"
#include "kernels/elementwise.h"

namespace tfm::kernels {
namespace {

template <class T> constexpr cudaDataType_t kType = std::is_same_v<T, double> ? CUDA_R_64F
                                                    : std::is_same_v<T, float> ? CUDA_R_32F
                                                    : std::is_same_v<T, bf16>  ? CUDA_R_16BF
                                                                               : CUDA_R_16F;

// Bytes, at most 16, that both the start and the length of a row are multiples of.
template <class T> std::int32_t alignment(const T* p, std::int64_t ld) {
  const std::uintptr_t bits = reinterpret_cast<std::uintptr_t>(p) | static_cast<std::uintptr_t>(ld) * sizeof(T) | 16;
  return static_cast<std::int32_t>(bits & -bits);
}

// The product has no terms.
template <class T> void scale_rows(cuda::Stream& stream, const GemmArgs<T>& g) {
  for (std::int64_t r = 0; r < g.m; ++r) {
    T* c = g.c + r * g.ldc;
    if (g.beta == T{0})
      fill(stream, FillArgs<T>{g.n, T{0}, c});
    else
      copy(stream, CopyArgs<T>{g.n, c, c, false, g.beta});
  }
}

}  // namespace

template <class T, class C> void gemm(cuda::Stream& stream, const GemmArgs<T, C>& g) {
  if (g.m <= 0 || g.n <= 0) return;
  TFM_CHECK(!g.bias || g.beta == Wide<T>{0}, "a bias needs beta 0");
  TFM_CHECK(sizeof(T) > 2 || (g.k > 0 && (!g.bias || sizeof(C) == 2)), "16-bit factors need terms, and a bias a 16-bit product");
  const bool epilogue = g.bias && !std::is_same_v<T, double> && g.k > 0;  // which cuBLASLt lacks for doubles
  if (g.k > 0) {
    const cuda::Product p{.m = g.m, .n = g.n, .k = g.k, .lda = g.lda, .ldb = g.ldb, .ldc = g.ldc, .factors = kType<T>, .product = kType<C>,
                          .transpose_a = g.transpose_a, .transpose_b = g.transpose_b, .reads_c = g.beta != 0, .bias = epilogue,
                          .align_a = alignment(g.a, g.lda), .align_b = alignment(g.b, g.ldb), .align_c = alignment(g.c, g.ldc)};
    stream.own<cuda::Blas>().run(p, &g.alpha, g.a, g.b, &g.beta, g.c, epilogue ? g.bias : nullptr);
  } else if constexpr (std::is_same_v<T, C>) {
    scale_rows(stream, g);
  }
  if constexpr (std::is_same_v<T, C>)
    if (g.bias && !epilogue)
      for (std::int64_t r = 0, rows = g.ldc == g.n ? g.m : 1; r < g.m; r += rows) add_bias(stream, AddBiasArgs<T>{rows, g.n, g.bias, g.c + r * g.ldc});
}

template void gemm(cuda::Stream&, const GemmArgs<float>&);
template void gemm(cuda::Stream&, const GemmArgs<double>&);
template void gemm(cuda::Stream&, const GemmArgs<bf16>&);
template void gemm(cuda::Stream&, const GemmArgs<f16>&);
template void gemm(cuda::Stream&, const GemmArgs<bf16, float>&);
template void gemm(cuda::Stream&, const GemmArgs<f16, float>&);

}  // namespace tfm::kernels
