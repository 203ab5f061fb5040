#pragma once
// Matrix products C (m,n) = alpha * op(A) (m,k) * op(B) (k,n) + beta * C. Matrices are row-major;
// leading dimensions are in elements.
#include <cstdint>

#include "core/dtype.h"
#include "device/stream.h"
#include "kernels/activation.h"

namespace tfm::kernels {

// C is T, or Accum<T> for gradients of parameters.
template <class T, class C = T>
struct GemmArgs {
  bool transpose_a = false, transpose_b = false;
  std::int64_t m = 0, n = 0, k = 0;
  Accum<T> alpha = 1;
  const T* a = nullptr;
  std::int64_t lda = 0;
  const T* b = nullptr;
  std::int64_t ldb = 0;
  Accum<T> beta = 0;
  C* c = nullptr;
  std::int64_t ldc = 0;
  const T* bias = nullptr;  // (n), added to every row; only with beta 0
};

// Gradients of a linear layer: dw (out, in) (+)= scale dy^T x, db (out) (+)= sum of the rows of dy.
template <class T>
struct LinearGradientsArgs {
  std::int64_t rows = 0, in = 0, out = 0;
  Accum<T> scale = 1;
  const T* dy = nullptr;  // (rows, out)
  const T* x = nullptr;   // (rows, in)
  Accum<T>* dw = nullptr;
  bool accumulate_dw = false;
  Accum<T>* db = nullptr;  // may be null
  bool accumulate_db = false;

  GemmArgs<T, Accum<T>> product() const {
    return {.transpose_a = true,
            .m = out,
            .n = in,
            .k = rows,
            .alpha = scale,
            .a = dy,
            .lda = out,
            .b = x,
            .ldb = in,
            .beta = Accum<T>(accumulate_dw),
            .c = dw,
            .ldc = in};
  }
};

// Gradient of the input of an activation that a linear layer follows. product.c is activation.dy,
// which may be left unwritten; product.beta is 0.
template <class T>
struct GemmActivationBackwardArgs {
  GemmArgs<T> product;
  ActivationBackwardArgs<T> activation;
};

// On CPUs, inside an OpenMP parallel region, the product runs in the calling thread alone.
template <class T, class C>
void gemm(cpu::Stream&, const GemmArgs<T, C>&);
template <class T, class C>
void gemm(cuda::Stream&, const GemmArgs<T, C>&);
template <class T>
void linear_gradients(cpu::Stream&, const LinearGradientsArgs<T>&);
template <class T>
void linear_gradients(cuda::Stream&, const LinearGradientsArgs<T>&);
template <class T>
void gemm_activation_backward(cpu::Stream&, const GemmActivationBackwardArgs<T>&);
template <class T>
void gemm_activation_backward(cuda::Stream&, const GemmActivationBackwardArgs<T>&);

}  // namespace tfm::kernels
