// Gradients of keys and values on tensor cores: a block owns 64 keys of one key head and goes through the queries of all heads
// that read it, in a fixed order. Scores are computed transposed, (keys, queries). From 129 elements a head, two warps share 16
// keys and each keeps half of the gradients' columns.
#include "kernels/cuda/attention_tensor.h"

namespace tfm::kernels::gpu {
namespace {

constexpr int kRows = 64;  // keys of a block
template <int D>
constexpr int kQueries = D <= 64 ? 64 : 32;  // of a tile
template <int D>
constexpr int kParts = D <= 128 ? 1 : 2;
template <int D>
constexpr int kThreads = 128 * kParts<D>;

template <class T, int D>
struct Shared {
  static constexpr int kTile = kQueries<D> * D, kWindow = kRows + kQueries<D>;
  T* k = cuda::shared_memory<T>();                                               // (kRows, D)
  T* v = k + kRows * D;                                                          // (kRows, D)
  T* q = v + kRows * D;                                                          // (2, kQueries, D)
  T* dout = q + 2 * kTile;                                                       // (2, kQueries, D)
  float* lse = reinterpret_cast<float*>(dout + 2 * kTile);                       // (2, kQueries)
  float* delta = lse + 2 * kQueries<D>;                                          // (2, kQueries)
  float* bias = delta + 2 * kQueries<D>;                                         // (2, kWindow)
  std::int32_t* segments = reinterpret_cast<std::int32_t*>(bias + 2 * kWindow);  // (2, kQueries)
  static constexpr std::size_t bytes(bool added) {
    return (2 * kRows * D + 4 * kTile) * sizeof(T) + 4 * kQueries<D> * 4 + (added ? 2 * (kWindow + kQueries<D>)*4 : 0);
  }
};

// The it-th tile of queries: those of the group's first head, then of the next.
template <class T, int D>
struct Tile {
  Head<T> head;
  int first;
  __device__ Tile(const AttentionArgs<T>& a, const std::int32_t* real, int it, int first_tile, int tiles)
      : head(a, real, blockIdx.z, blockIdx.y * static_cast<int>(a.heads / a.kv_heads) + it / tiles),
        first((first_tile + it % tiles) * kQueries<D>) {}
};

template <class T, int D, bool Added>
__device__ void load(const Shared<T, D>& shared, const AttentionBackwardArgs<T>& g, const float* delta, const Tile<T, D>& tile,
                     int stage) {
  constexpr int N = kQueries<D>, kTile = N * D, kWindow = kRows + N;
  const AttentionArgs<T>& a = g.forward;
  const Head<T>& head = tile.head;
  const int end = head.mask.queries, size = static_cast<int>(a.head_size), thread = threadIdx.x;
  load_tile<D, N, kThreads<D>>(shared.q + stage * kTile, a.q + head.q_at(), a.q_stride, tile.first, end, size);
  load_tile<D, N, kThreads<D>>(shared.dout + stage * kTile, g.dout + head.out_at(), a.out_stride, tile.first, end, size);
  load_words(shared.lse + stage * N, a.lse + head.lse_at(), tile.first, N, 0, end, thread);
  load_words(shared.delta + stage * N, delta + head.lse_at(), tile.first, N, 0, end, thread - N);
  if constexpr (Added) {
    const int distance = static_cast<int>(blockIdx.x) * kRows - tile.first - (N - 1);
    if (a.bias) load_words(shared.bias + stage * kWindow, head.bias(), distance, kWindow - 1, 1 - end, head.mask.keys, thread);
    if (head.mask.documents)
      load_words(shared.segments + stage * N, a.q_segments + head.b * a.queries, tile.first, N, 0, end, thread);
  }
}

// From scores and gradients of the dropped weights to those weights and the gradients of the scores.
template <bool Added, class T, int N>
__device__ void to_gradients(float (&score)[N][4], float (&gradient)[N][4], const Head<T>& head, const float* lse,
                             const float* delta, int row, int column) {
  const Dropout& dropout = head.a.dropout;
  const bool drops = Added && dropout.p > 0;
  const float kept_scale = drops ? dropout.scale() : 1.0f;
  const std::uint32_t kept = drops ? kept_in_columns<N>(Dropped(head), row, column) : ~0u;
  each_element<N>([&](int n, int e) {
    const int i = n * 8 + 2 * LaneOf{}.t + e % 2;
    const float base = lse[i] == -std::numeric_limits<float>::infinity() ? 0.0f : lse[i] * kLog2E;
    const float weight = cuda::exp2_approximate(score[n][e] - base), factor = kept >> (4 * n + e) & 1 ? kept_scale : 0.0f;
    score[n][e] = weight * factor;
    gradient[n][e] = weight * (gradient[n][e] * factor - delta[i]);
  });
}

template <class T, int D, bool Added>
__global__ void __launch_bounds__(kThreads<D>, D <= 128 ? 2 : 1)
    backward_keys(const __grid_constant__ AttentionBackwardArgs<T> g, const std::int32_t* real, const float* delta) {
  constexpr int N = kQueries<D>, kTile = N * D, kWindow = kRows + N, kColumns = D / kParts<D>;
  const Shared<T, D> shared;
  const AttentionArgs<T>& a = g.forward;
  const LaneOf at;
  const int group = static_cast<int>(a.heads / a.kv_heads), first = blockIdx.x * kRows, size = static_cast<int>(a.head_size);
  const int warp = threadIdx.x / 32, warp_row = warp % 4 * 16, row = first + warp_row + at.g, columns = warp / 4 * kColumns;
  const Head<T> own(a, real, blockIdx.z, blockIdx.y * group);
  const Mask& mask = own.mask;
  const int first_tile = mask.first_query(first) / N,
            tiles = first < mask.real ? std::max(0, (mask.queries + N - 1) / N - first_tile) : 0;
  const std::int32_t segment[2] = {Added ? own.k_segment(row) : 0, Added ? own.k_segment(row + 8) : 0};
  float dk[kColumns / 8][4] = {}, dv[kColumns / 8][4] = {};
  if (tiles > 0) {
    load_tile<D, kRows, kThreads<D>>(shared.k, a.k + own.kv_at(), a.kv_stride, first, mask.real, size);
    load_tile<D, kRows, kThreads<D>>(shared.v, a.v + own.kv_at(), a.kv_stride, first, mask.real, size);
    load<T, D, Added>(shared, g, delta, {a, real, 0, first_tile, tiles}, 0);
    cuda::copy_async_commit();
  }
  for (int it = 0; it < group * tiles; ++it) {
    const int stage = it % 2;
    const Tile<T, D> tile(a, real, it, first_tile, tiles);
    if (it + 1 < group * tiles) load<T, D, Added>(shared, g, delta, {a, real, it + 1, first_tile, tiles}, 1 - stage);
    cuda::copy_async_commit();
    cuda::copy_async_wait<1>();
    cuda::block_barrier();  // this tile is there
    const T *q = shared.q + stage * kTile, *dout = shared.dout + stage * kTile;
    float score[N / 8][4] = {}, gradient[N / 8][4] = {};
    multiply_rows<T, D, N>(score, shared.k, warp_row, q);
    multiply_rows<T, D, N>(gradient, shared.v, warp_row, dout);
    const Beside beside{shared.bias + stage * kWindow, first - tile.first - (N - 1), shared.segments + stage * N};
    to_scores<true, Added>(score, a.scale * kLog2E, mask, row, tile.first + 2 * at.t,
                           mask.cuts(tile.first, tile.first + N, first + warp_row + 16), segment, beside, a.bias != nullptr);
    to_gradients<Added>(score, gradient, tile.head, shared.lse + stage * N, shared.delta + stage * N, row, tile.first + 2 * at.t);
    multiply_columns<T, D, N, kColumns>(dv, score, dout, columns);
    multiply_columns<T, D, N, kColumns>(dk, gradient, q, columns);
    cuda::block_barrier();  // nobody needs this tile any more
  }
  const float ones[2] = {1, 1}, scales[2] = {a.scale, a.scale};
  const std::int64_t to = own.kv_at() + first * a.kv_stride;
  store_rows<T, D, kColumns>(shared.k, dk, scales, g.dk + to, a.kv_stride, warp_row, mask.keys - first, columns, size);
  store_rows<T, D, kColumns>(shared.v, dv, ones, g.dv + to, a.kv_stride, warp_row, mask.keys - first, columns, size);
}

template <class T, int D>
void launch(cuda::Stream& stream, const AttentionBackwardArgs<T>& g, const BackwardScratch<T>& scratch) {
  const AttentionArgs<T>& a = g.forward;
  const dim3 grid(static_cast<unsigned>(ceil_div(a.keys, kRows)), static_cast<unsigned>(a.kv_heads),
                  static_cast<unsigned>(a.batch));
  with_flag(has_added(a), [&]<bool Added>() {
    cuda::launch(stream, backward_keys<T, D, Added>, grid, kThreads<D>, Shared<T, D>::bytes(Added), g, scratch.real,
                 scratch.delta);
  });
}

}  // namespace

template <class T>
void tensor_backward_keys(cuda::Stream& stream, const AttentionBackwardArgs<T>& g, const BackwardScratch<T>& scratch) {
  with_head_size(g.forward.head_size, [&]<int D>() { launch<T, D>(stream, g, scratch); });
}
template void tensor_backward_keys(cuda::Stream&, const AttentionBackwardArgs<bf16>&, const BackwardScratch<bf16>&);
template void tensor_backward_keys(cuda::Stream&, const AttentionBackwardArgs<f16>&, const BackwardScratch<f16>&);

}  // namespace tfm::kernels::gpu
