#pragma once
// Activations of the feed-forward layer. GELU: Hendrycks & Gimpel 2016; gated forms: Shazeer 2020;
// clamped: gpt-oss's (OpenAI 2025), gated alone, act(min(gate, 7)) (1 + max(-7, min(up, 7))) with
// act(x) = x sigmoid(1.702 x).
#include <cstdint>

#include "core/dtype.h"
#include "device/stream.h"

namespace tfm::kernels {

enum class Activation : std::uint8_t { relu, gelu, gelu_tanh, silu, tanh, clamped };

template <class T>
struct ActivationArgs {
  std::int64_t rows = 0, cols = 0;  // cols of y
  Activation kind = Activation::gelu;
  // x is (rows, 2 cols) = [gate | up] and y = act(gate) * up; otherwise x is (rows, cols).
  bool gated = false;
  const T* x = nullptr;
  T* y = nullptr;
};
template <class T>
struct ActivationBackwardArgs {
  std::int64_t rows = 0, cols = 0;
  Activation kind = Activation::gelu;
  bool gated = false;
  const T* x = nullptr;
  const T* dy = nullptr;  // (rows, cols)
  T* dx = nullptr;        // shaped as x
  bool accumulate = false;
};
// With the sum of the rows of dx, as stored; not gated, dx is assigned.
template <class T>
struct ActivationBackwardSumArgs {
  ActivationBackwardArgs<T> activation;
  Accum<T>* sum = nullptr;  // (cols)
  bool accumulate_sum = false;
};

template <class T>
void activation(cpu::Stream&, const ActivationArgs<T>&);
template <class T>
void activation_backward(cpu::Stream&, const ActivationBackwardArgs<T>&);
template <class T>
void activation_backward_sum(cpu::Stream&, const ActivationBackwardSumArgs<T>&);
template <class T>
void activation(cuda::Stream&, const ActivationArgs<T>&);
template <class T>
void activation_backward(cuda::Stream&, const ActivationBackwardArgs<T>&);
template <class T>
void activation_backward_sum(cuda::Stream&, const ActivationBackwardSumArgs<T>&);

}  // namespace tfm::kernels
