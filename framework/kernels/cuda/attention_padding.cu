#include <algorithm>
#include <limits>

#include "kernels/cuda/attention_padding.h"
#include "kernels/cuda/packs.h"

namespace tfm::kernels {
namespace gpu {
namespace {

// keys[b]: up to the last one of sequence b that is not padding, at least `least`; their segments
// are `stride` apart. queries, unless null, becomes `all`.
__global__ void __launch_bounds__(kThreads)
    count_keys(const std::int32_t* segments, std::int64_t n, std::int64_t stride, int least,
               std::int32_t* keys, std::int32_t* queries, int all) {
  int last = least;
  for (std::int64_t s = threadIdx.x; s < n; s += kThreads)
    if (segments[blockIdx.x * stride + s] >= 0) last = std::max(last, static_cast<int>(s) + 1);
  for (int mask = 16; mask > 0; mask /= 2) last = std::max(last, cuda::shuffle_xor(last, mask));
  int* of_warp = cuda::shared_memory<int>();
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = last;
  cuda::block_barrier();
  if (threadIdx.x > 0) return;
  for (int w = 1; w < kThreads / 32; ++w) last = std::max(last, of_warp[w]);
  keys[blockIdx.x] = last;
  if (queries) queries[blockIdx.x] = all;
}

template <class T>
void count_real(cuda::Stream& stream, const AttentionArgs<T>& a, int least, std::int32_t* keys,
                std::int32_t* queries) {
  cuda::launch(stream, count_keys, static_cast<unsigned>(a.batch), kThreads,
               kThreads / 32 * sizeof(int), a.k_segments + a.key_offset, a.keys, a.all_keys(),
               least, keys, queries, static_cast<int>(a.queries));
}

template <class T>
__device__ bool is_padding(const AttentionArgs<T>& a, std::int64_t b, std::int64_t key) {
  return a.k_segments[a.segment_of_key(b, key)] < 0;
}
template <class T>
__device__ void clear(T* row, std::int64_t width) {
  constexpr Accum<T> kZeros[kPack] = {};
  for (std::int64_t c = threadIdx.x % kWarp * kPack; c < width; c += kWarp * kPack)
    store_pack(row + c, part_of(c, width), kZeros);
}

// The warps of a sequence take its rows in turn: padding, which is adjacent, is shared out. There
// are as few as have a lane for each row, as mostly there is no padding.
struct Warps {
  std::int64_t own = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarp,
               all = static_cast<std::int64_t>(gridDim.x) * (kThreads / kWarp);
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    clear_results(const __grid_constant__ AttentionArgs<T> a) {
  const Warps warps;
  const std::int64_t b = blockIdx.y;
  if (!is_padding(a, b, 0)) return;
  for (std::int64_t t = warps.own; t < a.queries; t += warps.all) {
    clear(a.out + (b * a.queries + t) * a.out_stride, a.heads * a.head_size);
    for (std::int64_t h = threadIdx.x % kWarp; h < a.heads; h += kWarp)
      a.lse[(b * a.heads + h) * a.queries + t] = -std::numeric_limits<Accum<T>>::infinity();
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    clear_gradients(const __grid_constant__ AttentionBackwardArgs<T> g) {
  const AttentionArgs<T>& a = g.forward;
  const Warps warps;
  const std::int64_t b = blockIdx.y, key = warps.own + threadIdx.x % kWarp * warps.all;
  const unsigned padding = cuda::ballot(key < a.keys && is_padding(a, b, key));
  for (int lane = 0; padding != 0 && lane < kWarp; ++lane)
    if (padding >> lane & 1) {
      const std::int64_t at = (b * a.keys + warps.own + lane * warps.all) * a.kv_stride;
      clear(g.dk + at, a.kv_heads * a.head_size);
      clear(g.dv + at, a.kv_heads * a.head_size);
    }
  if (is_padding(a, b, 0))
    for (std::int64_t t = warps.own; t < a.queries; t += warps.all)
      clear(g.dq + (b * a.queries + t) * a.q_stride, a.heads * a.head_size);
}

template <class T>
dim3 grid(const AttentionArgs<T>& a, std::int64_t rows) {
  return {static_cast<unsigned>(ceil_div(rows, kThreads)), static_cast<unsigned>(a.batch)};
}

}  // namespace
}  // namespace gpu

template <class T>
void count_real(cuda::Stream& stream, const AttentionArgs<T>& a, std::int32_t* keys) {
  gpu::count_real(stream, a, 0, keys, nullptr);
}
template <class T>
void count_real(cuda::Stream& stream, const AttentionArgs<T>& a, std::int32_t* queries,
                std::int32_t* keys) {
  gpu::count_real(stream, a, 1, keys, queries);
}

template <class T>
void clear_padding(cuda::Stream& stream, const AttentionArgs<T>& a) {
  cuda::launch(stream, gpu::clear_results<T>, gpu::grid(a, a.queries), kThreads, 0, a);
}
template <class T>
void clear_padding(cuda::Stream& stream, const AttentionBackwardArgs<T>& g) {
  cuda::launch(stream, gpu::clear_gradients<T>,
               gpu::grid(g.forward, std::max(g.forward.queries, g.forward.keys)), kThreads, 0, g);
}

#define TFM_INSTANTIATE(T)                                                                        \
  template void count_real(cuda::Stream&, const AttentionArgs<T>&, std::int32_t*);                \
  template void count_real(cuda::Stream&, const AttentionArgs<T>&, std::int32_t*, std::int32_t*); \
  template void clear_padding(cuda::Stream&, const AttentionArgs<T>&);                            \
  template void clear_padding(cuda::Stream&, const AttentionBackwardArgs<T>&);
TFM_INSTANTIATE(float)
TFM_INSTANTIATE(double)
TFM_INSTANTIATE(bf16)
TFM_INSTANTIATE(f16)

}  // namespace tfm::kernels
