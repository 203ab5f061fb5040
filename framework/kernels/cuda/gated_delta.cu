// A thread block for each key head of each sequence.
#include "kernels/cuda/chunk_team.h"
#include "kernels/gated_delta_backward.inl"
#include "kernels/gated_delta_gates.inl"
#include "kernels/scratch.h"

namespace tfm::kernels {
namespace {

template <class T>
__global__ void __launch_bounds__(kThreads)
    gated_delta_kernel(GatedDeltaArgs<T> a, Accum<T>* memory, std::int64_t elements) {
  delta_forward(Block<Accum<T>>{}, a, blockIdx.x / a.sizes.key_heads,
                blockIdx.x % a.sizes.key_heads, memory + blockIdx.x * elements);
}
template <class T>
__global__ void __launch_bounds__(kThreads)
    gated_delta_backward_kernel(GatedDeltaBackwardArgs<T> a, Accum<T>* memory,
                                std::int64_t elements) {
  delta_backward(Block<Accum<T>>{}, a, blockIdx.x / a.sizes.key_heads,
                 blockIdx.x % a.sizes.key_heads, memory + blockIdx.x * elements);
}

template <class T>
__global__ void __launch_bounds__(kThreads) delta_gates_kernel(DeltaGatesArgs<T> a) {
  const std::int64_t n = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (n < a.rows * a.heads) put_gates(a, n / a.heads, n % a.heads);
}
template <class T>
__global__ void __launch_bounds__(kThreads)
    delta_gates_backward_kernel(DeltaGatesBackwardArgs<T> a) {
  const std::int64_t n = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (n < a.rows * a.heads) put_gate_gradients(a, n / a.heads, n % a.heads);
}

template <class T, class Args>
void over_key_heads(cuda::Stream& stream, void (*kernel)(Args, Accum<T>*, std::int64_t),
                    const Args& a, bool backward) {
  const std::int64_t blocks = a.sequences * a.sizes.key_heads,
                     elements = delta_elements(a.sizes, backward);
  if (blocks <= 0) return;
  cuda::Scratch<Accum<T>> memory(stream, blocks * elements);
  cuda::launch(stream, kernel, static_cast<unsigned>(blocks), kThreads, Block<Accum<T>>::kShared, a,
               memory, elements);
}

template <class Args>
void over_gates(cuda::Stream& stream, void (*kernel)(Args), const Args& a) {
  if (a.rows * a.heads > 0)
    cuda::launch(stream, kernel, static_cast<unsigned>(ceil_div(a.rows * a.heads, kThreads)),
                 kThreads, 0, a);
}

}  // namespace

template <class T>
void gated_delta(cuda::Stream& stream, const GatedDeltaArgs<T>& a) {
  over_key_heads<T>(stream, gated_delta_kernel<T>, a, false);
}
template <class T>
void gated_delta_backward(cuda::Stream& stream, const GatedDeltaBackwardArgs<T>& a) {
  over_key_heads<T>(stream, gated_delta_backward_kernel<T>, a, true);
}
template <class T>
void delta_gates(cuda::Stream& stream, const DeltaGatesArgs<T>& a) {
  over_gates(stream, delta_gates_kernel<T>, a);
}
template <class T>
void delta_gates_backward(cuda::Stream& stream, const DeltaGatesBackwardArgs<T>& a) {
  over_gates(stream, delta_gates_backward_kernel<T>, a);
}

#define TFM_INSTANTIATE(T)                                                             \
  template void gated_delta(cuda::Stream&, const GatedDeltaArgs<T>&);                  \
  template void gated_delta_backward(cuda::Stream&, const GatedDeltaBackwardArgs<T>&); \
  template void delta_gates(cuda::Stream&, const DeltaGatesArgs<T>&);                  \
  template void delta_gates_backward(cuda::Stream&, const DeltaGatesBackwardArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
