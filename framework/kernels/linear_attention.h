#pragma once
// Linear attention (Katharopoulos et al. 2020, "Transformers are RNNs", equations 5 and 9 to 12):
//   y_t = sum over seen s of (f(q_t) . f(k_s)) v_s / sum over the same of f(q_t) . f(k_s)
// with f(x) = elu(x) + 1. Causal attention goes through a sequence in chunks of positions, with a
// state (D, D + 1) of each head: the sums of f(k) [v, 1]. Attention to both sides is that, and the
// same from the end, without the position itself. Sums have type Accum<T>.
#include <cstdint>

#include "core/dtype.h"
#include "device/stream.h"

namespace tfm::kernels {

struct LinearSizes {
  std::int64_t heads = 0, size = 0;  // H, D
  bool causal = true;
  constexpr std::int64_t width() const { return heads * size; }
  constexpr std::int64_t state() const { return size * (size + 1); }
};
template <class T>
struct LinearAttentionArgs {
  std::int64_t sequences = 0, length = 0;  // B, T
  LinearSizes sizes;
  const T* qkv = nullptr;  // (B T, 3 H D)
  // (B T), each in one piece but for negative ones (padding), which are not seen, nor is what is of
  // another; null: one.
  const std::int32_t* segments = nullptr;
  T* y = nullptr;             // (B T, H D); zeros where nothing is seen
  Accum<T>* sums = nullptr;   // (B T, H): the denominators, where they are zero 1
  Accum<T>* state = nullptr;  // (B, H, D, D + 1), causal, read and replaced; null: zeros before
};
template <class T>
struct LinearAttentionBackwardArgs {
  LinearAttentionArgs<T> forward;  // y and sums are read
  const T* dy = nullptr;
  T* dqkv = nullptr;
  bool adds = false;  // whether dqkv is added to
};

// Elements of type Accum<T> that are kept for each head of a sequence, on GPUs as scratch memory.
std::int64_t linear_elements(const LinearSizes& sizes);

#define TFM_LINEAR_KERNELS(Stream)                               \
  template <class T>                                             \
  void linear_attention(Stream&, const LinearAttentionArgs<T>&); \
  template <class T>                                             \
  void linear_attention_backward(Stream&, const LinearAttentionBackwardArgs<T>&);
TFM_LINEAR_KERNELS(cpu::Stream)
TFM_LINEAR_KERNELS(cuda::Stream)
#undef TFM_LINEAR_KERNELS

}  // namespace tfm::kernels
