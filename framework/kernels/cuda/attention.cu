// Attention on GPUs: what comes before and after the kernels on tiles, and which of them run.
#include <string>

#include "kernels/cuda/attention_cudnn.h"
#include "kernels/cuda/attention_padding.h"
#include "kernels/cuda/attention_parts.h"

namespace tfm::kernels {
namespace gpu {
namespace {

constexpr int kThreads = 128;

// delta and, where it is not null, base of BackwardScratch, one warp each.
template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_delta(const __grid_constant__ AttentionBackwardArgs<T> g, Accum<T>* delta, Accum<T>* base) {
  const AttentionArgs<T>& a = g.forward;
  const std::int64_t t = std::int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32,
                     lane = threadIdx.x % 32;
  if (t >= a.queries) return;
  const std::int64_t b = blockIdx.z, h = blockIdx.y,
                     at = (b * a.queries + t) * a.out_stride + h * a.head_size;
  Accum<T> sum = 0;
  for (std::int64_t i = lane; i < a.head_size; i += 32)
    sum += cuda::widen(a.out[at + i]) * cuda::widen(g.dout[at + i]);
  for (int mask = 16; mask > 0; mask /= 2) sum += cuda::shuffle_xor(sum, mask);
  if (lane > 0) return;
  const std::int64_t row = (b * a.heads + h) * a.queries + t;
  delta[row] = sum;
  if (base)
    base[row] = a.lse[row] == -std::numeric_limits<Accum<T>>::infinity() ? 0 : a.lse[row] * kLog2E;
}

// dbias (B, heads, T + S - 1) from the diagonals of `tiles` tiles of `rows` queries: place p of
// tile i is distance p + T - (i + 1) rows.
template <class W>
__global__ void __launch_bounds__(kThreads)
    sum_diagonals(const W* diagonals, std::int64_t width, std::int64_t tiles, std::int64_t rows,
                  std::int64_t queries, std::int64_t distances, W* dbias) {
  const std::int64_t head = std::int64_t{blockIdx.z} * gridDim.y + blockIdx.y,
                     at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= distances) return;
  W sum = 0;
  for (std::int64_t i = 0; i < tiles; ++i) {
    const std::int64_t p = at - queries + (i + 1) * rows;
    if (p >= 0 && p < width) sum += diagonals[(head * tiles + i) * width + p];
  }
  dbias[head * distances + at] = sum;
}

template <class T>
dim3 grid_of(const AttentionArgs<T>& a, std::int64_t n, std::int64_t rows) {
  return dim3(static_cast<unsigned>(ceil_div(n, rows)), static_cast<unsigned>(a.heads),
              static_cast<unsigned>(a.batch));
}

template <class T>
void check(const AttentionArgs<T>& a) {
  TFM_CHECK(a.kv_heads > 0 && a.heads % a.kv_heads == 0,
            std::to_string(a.heads) + " query heads cannot be divided evenly among " +
                std::to_string(a.kv_heads) + " key/value heads");
  if (a.head_size > kMostHeadSize)
    throw Error(ExitCode::usage, "attention on GPUs supports heads of at most " +
                                     std::to_string(kMostHeadSize) + " elements, found " +
                                     std::to_string(a.head_size) +
                                     "; use more heads, or where latent attention generates, a "
                                     "smaller kv_rank");
}

template <class... P>
bool whole_chunks(const P*... rows) {
  return ((reinterpret_cast<std::uintptr_t>(rows) % 16 == 0) && ...);
}
template <class T>
bool on_tensor_cores(const AttentionArgs<T>& a) {
  return sizeof(T) == 2 && !a.visible.beyond.repeats &&
         (a.head_size | a.q_stride | a.kv_stride | a.out_stride) % 8 == 0 &&
         whole_chunks(a.q, a.k, a.v, a.out);
}

template <class T>
bool is_short(const AttentionArgs<T>& a) {
  return std::max(a.queries, a.keys) <= kTensorRows && a.keys == a.all_keys() &&
         a.head_size <= 128 && !a.bias;
}

// Real keys of each sequence; null where there is no padding.
template <class T>
class RealKeys {
 public:
  RealKeys(cuda::Stream& stream, const AttentionArgs<T>& a)
      : real_(stream, a.k_segments ? a.batch : 0) {
    if (real_) count_real(stream, a, real_);
  }
  operator const std::int32_t*() const { return real_; }

 private:
  cuda::Scratch<std::int32_t> real_;
};

template <class T>
void backward(cuda::Stream& stream, const AttentionBackwardArgs<T>& g,
              const BackwardScratch<T>& scratch, bool tensor) {
  const AttentionArgs<T>& a = g.forward;
  if constexpr (sizeof(T) == 2)
    if (tensor) {
      if (a.keys > 0) tensor_backward_keys(stream, g, scratch);
      if (a.queries > 0) tensor_backward_queries(stream, g, scratch);
      return;
    }
  plain_backward(stream, g, scratch);
}

}  // namespace
}  // namespace gpu

template <class T>
void own_attention(cuda::Stream& stream, const AttentionArgs<T>& a) {
  const gpu::RealKeys<T> real(stream, a);
  if constexpr (sizeof(T) == 2)
    if (gpu::on_tensor_cores(a)) return gpu::tensor_forward<T>(stream, a, real);
  gpu::plain_forward<T>(stream, a, real);
}

template <class T>
void own_attention(cuda::Stream& stream, const AttentionBackwardArgs<T>& g) {
  const AttentionArgs<T>& a = g.forward;
  const bool tensor = gpu::on_tensor_cores(a) && gpu::whole_chunks(g.dout, g.dq, g.dk, g.dv);
  const std::int64_t rows = tensor ? gpu::kTensorRows : gpu::kPlainRows<T>,
                     tiles = ceil_div(a.queries, rows), distances = a.queries + a.keys - 1;
  const gpu::RealKeys<T> real(stream, a);
  if constexpr (sizeof(T) == 2)
    if (tensor && gpu::is_short(a)) return gpu::tensor_backward_short(stream, g, real);
  gpu::BackwardScratch<T> scratch{.real = real, .width = attention_diagonals(a.keys, rows)};
  const cuda::Scratch<Accum<T>> delta(stream, a.batch * a.heads * a.queries),
      base(stream, tensor ? a.batch * a.heads * a.queries : 0),
      diagonals(stream, g.dbias ? a.batch * a.heads * tiles * scratch.width : 0);
  scratch.delta = delta, scratch.base = base, scratch.diagonals = diagonals;
  if (a.queries > 0)
    cuda::launch(stream, gpu::sum_delta<T>, gpu::grid_of(a, a.queries, gpu::kThreads / 32),
                 gpu::kThreads, 0, g, delta, scratch.base);
  gpu::backward(stream, g, scratch, tensor);
  if (g.dbias && distances > 0)
    cuda::launch(stream, gpu::sum_diagonals<Accum<T>>, gpu::grid_of(a, distances, gpu::kThreads),
                 gpu::kThreads, 0, diagonals, scratch.width, tiles, rows, a.queries, distances,
                 g.dbias);
}

template <class T>
void attention(cuda::Stream& stream, const AttentionArgs<T>& a) {
  gpu::check(a);
  if (a.batch * a.heads * a.queries == 0) return;
#ifdef TFM_CUDNN
  if constexpr (sizeof(T) == 2)
    if (cudnn_attention_if_faster(stream, a)) return;
#endif
  own_attention(stream, a);
}

template <class T>
void attention_backward(cuda::Stream& stream, const AttentionBackwardArgs<T>& g) {
  gpu::check(g.forward);
  if (g.forward.batch * g.forward.heads == 0) return;
#ifdef TFM_CUDNN
  if constexpr (sizeof(T) == 2)
    if (cudnn_attention_if_faster(stream, g)) return;
#endif
  own_attention(stream, g);
}

#define TFM_INSTANTIATE(T)                                                     \
  template void own_attention(cuda::Stream&, const AttentionArgs<T>&);         \
  template void own_attention(cuda::Stream&, const AttentionBackwardArgs<T>&); \
  template void attention(cuda::Stream&, const AttentionArgs<T>&);             \
  template void attention_backward(cuda::Stream&, const AttentionBackwardArgs<T>&);
TFM_INSTANTIATE(float)
TFM_INSTANTIATE(double)
TFM_INSTANTIATE(bf16)
TFM_INSTANTIATE(f16)

}  // namespace tfm::kernels
