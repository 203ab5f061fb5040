#pragma once
// Sinks of attention (Xiao et al. 2024; OpenAI 2025, "gpt-oss"): each head has one more score,
// which is learned, of a key whose value is zero. Attention to all other keys is scaled down by it;
// its backward pass needs nothing but the output and the log-sum-exp that sinks are a part of.
#include <cstdint>

#include "kernels/attention.h"

namespace tfm::kernels {

// Sizes and rows as those of AttentionArgs.
template <class T>
struct AttentionSinksArgs {
  std::int64_t batch = 0, heads = 0, queries = 0, head_size = 0;
  const T* sinks = nullptr;  // (H)
  T* out = nullptr;          // (B*T, H*D) with out_stride
  std::int64_t out_stride = 0;
  Accum<T>* lse = nullptr;  // (B, H, T)
};
// Of attention to all keys.
template <class T>
AttentionSinksArgs<T> sinks_of(const AttentionArgs<T>& a, const T* sinks) {
  return {a.batch, a.heads, a.queries, a.head_size, sinks, a.out, a.out_stride, a.lse};
}
template <class T>
struct AttentionSinksBackwardArgs {
  AttentionSinksArgs<T> forward;  // out and lse with the sinks
  const T* dout = nullptr;        // laid out as out
  Accum<T>* dsinks = nullptr;     // (H); summed in float64 in a fixed order
  bool accumulate = false;
};

#define TFM_SINK_KERNELS(Stream)                               \
  template <class T>                                           \
  void attention_sinks(Stream&, const AttentionSinksArgs<T>&); \
  template <class T>                                           \
  void attention_sinks_backward(Stream&, const AttentionSinksBackwardArgs<T>&);
TFM_SINK_KERNELS(cpu::Stream)
TFM_SINK_KERNELS(cuda::Stream)
#undef TFM_SINK_KERNELS

}  // namespace tfm::kernels
