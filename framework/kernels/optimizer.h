#pragma once
// Parameter updates, each one pass over memory, and the sum of squares that clipping needs.
#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "device/stream.h"

namespace tfm::kernels {

// Elements that are updated alike.
template <class T, class P = T> struct UpdateRange {
  std::int64_t n = 0;
  bool decays = true;       // weight decay applies
  T* param = nullptr;       // the weights themselves
  const T* grad = nullptr;
  T* m = nullptr;           // Adam's first moment, or momentum's buffer (null when momentum is 0)
  T* v = nullptr;           // Adam's second moment
  T* average = nullptr;     // of the weights, or null: average += (1 - keep) * (param - average) (Polyak & Juditsky 1992, exponentially weighted)
  P* rounded = nullptr;     // the weights as the model computes with them, or null where it reads param
};
// Adam (Kingma & Ba 2015) and AdamW (Loshchilov & Hutter 2019), arithmetic as in torch.optim.
template <class T, class P = T> struct AdamArgs {
  std::span<const UpdateRange<T, P>> ranges;
  double lr = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0;
  bool decoupled = true;             // true: p -= lr*decay*p first (AdamW); false: g += decay*p (Adam)
  double correction1 = 1, correction2 = 1;  // 1 - beta^t
  double grad_scale = 1;             // clip factor over loss scale, read with every gradient
  double keep = 0;                   // of the average
};
template <class T, class P = T> struct SgdArgs {
  std::span<const UpdateRange<T, P>> ranges;
  double lr = 0, momentum = 0, decay = 0, grad_scale = 1, keep = 0;
  bool first = false;  // the buffer starts as the gradient
};
struct Range {
  std::int64_t begin = 0, end = 0;
};
// Adds the sums of x^2 over `ranges` of x, times 2^88, as an exact integer over blocks of 64 elements, to `limbs` (4 x 32 bits in int64, least
// first), so that the result does not depend on how the blocks are split. Returns false where a block is not finite or beyond 2^36.
// On a device it waits for the stream, once.
template <class T> struct SquareSumArgs {
  const T* x = nullptr;
  std::span<const Range> ranges;
  T scale = 1;  // of every x, a power of two
  std::int64_t limbs[4] = {0, 0, 0, 0};
  double plain = 0;  // the same sum, block by block in float64
};

template <class T, class P> void adam(cpu::Stream&, const AdamArgs<T, P>&);
template <class T, class P> void sgd(cpu::Stream&, const SgdArgs<T, P>&);
template <class T> bool square_sum(cpu::Stream&, SquareSumArgs<T>&);
template <class T, class P> void adam(cuda::Stream&, const AdamArgs<T, P>&);
template <class T, class P> void sgd(cuda::Stream&, const SgdArgs<T, P>&);
template <class T> bool square_sum(cuda::Stream&, SquareSumArgs<T>&);

// f(T, P) for the types of weights and of what the model computes with.
#define TFM_UPDATES(f) f(float, float) f(float, bf16) f(float, f16) f(double, double)

}  // namespace tfm::kernels
