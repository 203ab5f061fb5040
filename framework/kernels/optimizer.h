#pragma once
// Parameter updates over flat ranges, and the sum of squares that clipping needs.
#include <cstdint>

#include "device/stream.h"

namespace tfm::kernels {

// Adam (Kingma & Ba 2015) and AdamW (Loshchilov & Hutter 2019), arithmetic as in torch.optim.
template <class T> struct AdamArgs {
  std::int64_t n = 0;
  T* param = nullptr;
  const T* grad = nullptr;
  T* m = nullptr;
  T* v = nullptr;
  double lr = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0;
  bool decoupled = true;             // true: p -= lr*decay*p first (AdamW); false: g += decay*p (Adam)
  double correction1 = 1, correction2 = 1;  // 1 - beta^t
  double grad_scale = 1;             // clip factor, read with every gradient
};
template <class T> struct SgdArgs {
  std::int64_t n = 0;
  T* param = nullptr;
  const T* grad = nullptr;
  T* momentum_buffer = nullptr;  // null when momentum is 0
  double lr = 0, momentum = 0, decay = 0, grad_scale = 1;
  bool first = false;  // the buffer starts as the gradient
};
// Adds sum(x^2) * 2^88, as an exact integer over blocks of 64 elements, to `limbs` (4 x 32 bits in int64, least first), so that the
// result does not depend on how the blocks are split. Returns false where a block is not finite or beyond 2^36.
// On a device it waits for the stream.
template <class T> struct SquareSumArgs {
  std::int64_t n = 0;
  const T* x = nullptr;
  T scale = 1;  // of every x, a power of two
  std::int64_t limbs[4] = {0, 0, 0, 0};
  double plain = 0;  // the same sum, block by block in float64
};

// average += (1 - decay) * (param - average): Polyak & Juditsky 1992, exponentially weighted.
template <class T> struct AverageArgs {
  std::int64_t n = 0;
  const T* param = nullptr;
  T* average = nullptr;
  double decay = 0;
};

template <class T> void adam(cpu::Stream&, const AdamArgs<T>&);
template <class T> void sgd(cpu::Stream&, const SgdArgs<T>&);
template <class T> void average(cpu::Stream&, const AverageArgs<T>&);
template <class T> bool square_sum(cpu::Stream&, SquareSumArgs<T>&);
template <class T> void adam(cuda::Stream&, const AdamArgs<T>&);
template <class T> void sgd(cuda::Stream&, const SgdArgs<T>&);
template <class T> void average(cuda::Stream&, const AverageArgs<T>&);
template <class T> bool square_sum(cuda::Stream&, SquareSumArgs<T>&);

}  // namespace tfm::kernels
