#pragma once
// C (m,n) = alpha * op(A) (m,k) * op(B) (k,n) + beta * C, all row-major with leading dimensions in elements.
#include <cstdint>

#include "core/dtype.h"
#include "device/stream.h"

namespace tfm::kernels {

// C may be of the type that T is computed in (gradients of parameters).
template <class T, class C = T> struct GemmArgs {
  bool transpose_a = false, transpose_b = false;
  std::int64_t m = 0, n = 0, k = 0;
  Wide<T> alpha = 1;
  const T* a = nullptr;
  std::int64_t lda = 0;
  const T* b = nullptr;
  std::int64_t ldb = 0;
  Wide<T> beta = 0;
  C* c = nullptr;
  std::int64_t ldc = 0;
  const T* bias = nullptr;  // (n), added to every row; only with beta 0
};

// Inside an OpenMP parallel region the product runs in the calling thread alone.
template <class T, class C> void gemm(cpu::Stream&, const GemmArgs<T, C>&);
template <class T, class C> void gemm(cuda::Stream&, const GemmArgs<T, C>&);

}  // namespace tfm::kernels
