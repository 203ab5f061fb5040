#include "kernels/linear_attention.inl"

#include "kernels/cpu/chunk_team.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_half.h"

namespace tfm::kernels {
namespace {

// Calls f(sequence, head, memory).
template <class T, class F>
void each_head(cpu::Stream& stream, const LinearAttentionArgs<T>& a, F&& f) {
  const std::int64_t elements = linear_elements(a.sizes);
  parallel_tasks(stream, a.sequences * a.sizes.heads, [&](std::int64_t i) {
    f(i / a.sizes.heads, i % a.sizes.heads, scratch<Accum<T>, struct LinearScratch>(elements));
  });
}

}  // namespace

std::int64_t linear_elements(const LinearSizes& sizes) {
  return LinearMemory<double>(sizes, nullptr).elements;
}

template <class T>
void linear_attention(cpu::Stream& stream, const LinearAttentionArgs<T>& a) {
  each_head(stream, a, [&](std::int64_t b, std::int64_t h, Accum<T>* memory) {
    linear_forward(ThreadAlone<T>{}, a, b, h, memory);
  });
}

template <class T>
void linear_attention_backward(cpu::Stream& stream, const LinearAttentionBackwardArgs<T>& g) {
  each_head(stream, g.forward, [&](std::int64_t b, std::int64_t h, Accum<T>* memory) {
    linear_backward(ThreadAlone<T>{}, g, b, h, memory);
  });
}

#define TFM_INSTANTIATE(T)                                                     \
  template void linear_attention(cpu::Stream&, const LinearAttentionArgs<T>&); \
  template void linear_attention_backward(cpu::Stream&, const LinearAttentionBackwardArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
