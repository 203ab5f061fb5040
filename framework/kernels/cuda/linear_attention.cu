// A thread block for each head of each sequence.
#include "kernels/cuda/chunk_team.h"
#include "kernels/linear_attention.inl"
#include "kernels/scratch.h"

namespace tfm::kernels {
namespace {

template <class T>
__global__ void __launch_bounds__(kThreads)
    linear_attention_kernel(LinearAttentionArgs<T> a, Accum<T>* memory, std::int64_t elements) {
  linear_forward(Block<Accum<T>>{}, a, blockIdx.x / a.sizes.heads, blockIdx.x % a.sizes.heads,
                 memory + blockIdx.x * elements);
}
template <class T>
__global__ void __launch_bounds__(kThreads)
    linear_attention_backward_kernel(LinearAttentionBackwardArgs<T> g, Accum<T>* memory,
                                     std::int64_t elements) {
  const std::int64_t heads = g.forward.sizes.heads;
  linear_backward(Block<Accum<T>>{}, g, blockIdx.x / heads, blockIdx.x % heads,
                  memory + blockIdx.x * elements);
}

template <class T, class Args>
void over_heads(cuda::Stream& stream, void (*kernel)(Args, Accum<T>*, std::int64_t),
                const Args& args, const LinearAttentionArgs<T>& a) {
  const std::int64_t blocks = a.sequences * a.sizes.heads, elements = linear_elements(a.sizes);
  if (blocks <= 0) return;
  cuda::Scratch<Accum<T>> memory(stream, blocks * elements);
  cuda::launch(stream, kernel, static_cast<unsigned>(blocks), kThreads, Block<Accum<T>>::kShared,
               args, memory, elements);
}

}  // namespace

template <class T>
void linear_attention(cuda::Stream& stream, const LinearAttentionArgs<T>& a) {
  over_heads<T>(stream, linear_attention_kernel<T>, a, a);
}
template <class T>
void linear_attention_backward(cuda::Stream& stream, const LinearAttentionBackwardArgs<T>& g) {
  over_heads<T>(stream, linear_attention_backward_kernel<T>, g, g.forward);
}

#define TFM_INSTANTIATE(T)                                                      \
  template void linear_attention(cuda::Stream&, const LinearAttentionArgs<T>&); \
  template void linear_attention_backward(cuda::Stream&, const LinearAttentionBackwardArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
