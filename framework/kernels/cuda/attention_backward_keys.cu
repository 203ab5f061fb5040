// Gradients of keys and values on tensor cores: a block owns 64 keys of one key head and goes
// through the queries of all heads that read it, in a fixed order. Scores are computed transposed,
// (keys, queries). From 129 elements a head, two warps share 16 keys and each keeps half of the
// gradients' columns.
#include "kernels/cuda/attention_scores.h"
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
  float* base = reinterpret_cast<float*>(dout + 2 * kTile);                      // (2, kQueries)
  float* delta = base + 2 * kQueries<D>;                                         // (2, kQueries)
  float* bias = delta + 2 * kQueries<D>;                                         // (2, kWindow)
  std::int32_t* segments = reinterpret_cast<std::int32_t*>(bias + 2 * kWindow);  // (2, kQueries)
  static constexpr std::size_t bytes(bool added) {
    return (2 * kRows * D + 4 * kTile) * sizeof(T) + 4 * kQueries<D> * 4 +
           (added ? 2 * (kWindow + kQueries<D>)*4 : 0);
  }
};

// A tile of queries: those of the group's first head come first, each from `begin` on, then the
// next head's.
template <class T, int D, bool Landmarks>
struct Tile {
  Head<T, Landmarks> head;
  int begin, first = begin, left_out = 0;  // queries between the last tile and this
  __device__ void advance(int keys) {      // `keys`: the first of the block
    const int next =
        head.mask.template queries_after<kQueries<D>>(keys, kRows, first + kQueries<D>);
    left_out = next - first - kQueries<D>;
    first = next;
    if (first >= head.mask.queries) first = begin, ++head.h;
  }
};

// Loads one tile after another.
template <class T, int D, bool Added>
class Queries {
 public:
  __device__ Queries(const AttentionBackwardArgs<T>& g, const BackwardScratch<T>& scratch)
      : g_(g), scratch_(scratch) {}
  template <bool Landmarks>
  __device__ void load(const Shared<T, D>& shared, const Tile<T, D, Landmarks>& tile, int stage) {
    constexpr int N = kQueries<D>, kTile = N * D, kWindow = kRows + N;
    const AttentionArgs<T>& a = g_.forward;
    const auto& head = tile.head;
    const int end = head.mask.queries, size = static_cast<int>(a.head_size), thread = threadIdx.x;
    if (tile.first == tile.begin) {
      q_ = {a.q + head.q_at(), a.q_stride, tile.first, end, size};
      dout_ = {g_.dout + head.out_at(), a.out_stride, tile.first, end, size};
      base_ = scratch_.base + head.lse_at(), delta_ = scratch_.delta + head.lse_at();
    } else if constexpr (Landmarks) {
      q_.skip(tile.left_out), dout_.skip(tile.left_out);
    }
    q_.start(shared.q + stage * kTile);
    dout_.start(shared.dout + stage * kTile);
    load_words(shared.base + stage * N, base_, tile.first, N, 0, end, thread);
    load_words(shared.delta + stage * N, delta_, tile.first, N, 0, end, thread - N);
    if constexpr (Added) {
      const int distance = static_cast<int>(blockIdx.x) * kRows - tile.first - (N - 1);
      if (a.bias)
        load_words(shared.bias + stage * kWindow, head.bias(), distance, kWindow - 1, 1 - end,
                   head.mask.keys, thread);
      if (head.mask.documents)
        load_words(shared.segments + stage * N, a.q_segments + a.segment_of_query(head.b, 0),
                   tile.first, N, 0, end, thread);
    }
  }

 private:
  const AttentionBackwardArgs<T>& g_;
  const BackwardScratch<T>& scratch_;
  const float *base_, *delta_;  // of the head
  Loader<T, D, kQueries<D>, kThreads<D>> q_, dout_;
};

// As kept_in_rows, where rows are keys: four lanes share the blocks of their rows, and each draws
// one element's.
template <int N>
__device__ std::uint32_t kept_in_columns(const Dropped& dropped, int row, int column) {
  const LaneOf at;
  const int e = at.g % 4;
  std::uint32_t kept = 0;
  TFM_UNROLL for (int n = 0; n < N; n += 2) {
    std::uint32_t all = 0;
    TFM_UNROLL for (int m = 0; m < 2; ++m) all |=
        dropped.four(column + (n + m) * 8 + e % 2, row - at.g % 4 + e / 2 * 8) << (16 * m + 4 * e);
    all |= cuda::shuffle_xor(all, 4);
    all |= cuda::shuffle_xor(all, 8);
    all >>= at.g % 4;
    TFM_UNROLL for (int i = 0; i < 8; ++i) kept |= (all >> 4 * i & 1) << (4 * n + i);
  }
  return kept;
}

// From scores and gradients of the dropped weights to those weights and the gradients of the
// scores.
template <bool Added, class T, bool Landmarks, int N>
__device__ void to_gradients(float (&score)[N][4], float (&gradient)[N][4],
                             const Head<T, Landmarks>& head, const float* base, const float* delta,
                             int row, int column) {
  const Dropout& dropout = head.a.dropout;
  const bool drops = Added && dropout.p > 0;
  const float kept_scale = drops ? dropout.scale() : 1.0f;
  const std::uint32_t kept = drops ? kept_in_columns<N>(Dropped(head), row, column) : ~0u;
  each_element<N>([&](int n, int e) {
    const int i = n * 8 + 2 * LaneOf{}.t + e % 2;
    const float weight = cuda::exp2_approximate(score[n][e] - base[i]),
                factor = kept >> (4 * n + e) & 1 ? kept_scale : 0.0f;
    score[n][e] = weight * factor;
    gradient[n][e] = weight * (gradient[n][e] * factor - delta[i]);
  });
}

template <class T, int D, Scores Kind, bool Warpgroup>
__global__ void __launch_bounds__(kThreads<D>, D <= 32    ? 3
                                               : D <= 128 ? 2
                                                          : 1)
    backward_keys(const __grid_constant__ AttentionBackwardArgs<T> g,
                  const __grid_constant__ BackwardScratch<T> scratch) {
  constexpr int N = kQueries<D>, kTile = N * D, kWindow = kRows + N, kColumns = D / kParts<D>;
  constexpr bool Added = Kind != Scores::plain, Landmarks = Kind == Scores::landmarks;
  const Shared<T, D> shared;
  const AttentionArgs<T>& a = g.forward;
  const LaneOf at;
  const LanePlace<D> lane;
  const int group = static_cast<int>(a.heads / a.kv_heads), first = blockIdx.x * kRows,
            size = static_cast<int>(a.head_size);
  const int warp = threadIdx.x / 32, warp_row = warp % 4 * 16, row = first + warp_row + at.g,
            columns = warp / 4 * kColumns;
  Head<T, Landmarks> own(a, scratch.real, blockIdx.z, blockIdx.y * group);
  const auto& mask = own.mask;
  const Tiles tiles = mask.template queries_of<N>(first, kRows);
  own.mask.queries = tiles.end;  // those behind see none of the keys
  const int end = own.h + (tiles.count > 0 ? group : 0);
  const std::int32_t segment[2] = {Added ? own.k_segment(row) : 0,
                                   Added ? own.k_segment(row + 8) : 0};
  float dk[kColumns / 8][4] = {}, dv[kColumns / 8][4] = {};
  Queries<T, D, Added> queries(g, scratch);
  Tile<T, D, Landmarks> next{own, tiles.begin};
  if (next.head.h < end) {
    Loader<T, D, kRows, kThreads<D>>(a.k + own.kv_at(), a.kv_stride, first, mask.real, size)
        .start(shared.k);
    Loader<T, D, kRows, kThreads<D>>(a.v + own.kv_at(), a.kv_stride, first, mask.real, size)
        .start(shared.v);
    queries.load(shared, next, 0);
    cuda::copy_async_commit();
  }
  const LeftFactor<T, D, false> keys(shared.k, warp_row, lane), values(shared.v, warp_row, lane);
  for (int stage = 0; next.head.h < end; stage = 1 - stage) {
    const Tile<T, D, Landmarks> tile = next;
    next.advance(first);
    if (next.head.h < end) queries.load(shared, next, 1 - stage);
    cuda::copy_async_commit();
    cuda::copy_async_wait<1>();
    if constexpr (Warpgroup) cuda::show_to_warpgroups();
    cuda::block_barrier();  // this tile is there
    const T *q = shared.q + stage * kTile, *dout = shared.dout + stage * kTile;
    float score[N / 8][4] = {}, gradient[N / 8][4] = {};
    multiply_rows<T, D, N, Warpgroup>(score, keys, q, lane);
    multiply_rows<T, D, N, Warpgroup>(gradient, values, dout, lane);
    const Beside beside{shared.bias + stage * kWindow, first - tile.first - (N - 1),
                        shared.segments + stage * N};
    SoftCap<Kind, N / 8> cap;
    const float scale = cap.apply(score, a);
    to_scores<true, Added>(
        score, scale, mask, row, tile.first + 2 * at.t,
        mask.cuts({tile.first, tile.first + N}, {first + warp_row, first + warp_row + 16}), segment,
        beside, a.bias != nullptr);
    to_gradients<Added>(score, gradient, tile.head, shared.base + stage * N,
                        shared.delta + stage * N, row, tile.first + 2 * at.t);
    cap.backward(gradient);
    multiply_columns<T, D, N, kColumns, Warpgroup>(dv, score, dout + columns * N, lane);
    multiply_columns<T, D, N, kColumns, Warpgroup>(dk, gradient, q + columns * N, lane);
    cuda::block_barrier();  // nobody needs this tile any more
  }
  const float ones[2] = {1, 1}, scales[2] = {a.scale, a.scale};
  const std::int64_t to = own.kv_at() + first * a.kv_stride;
  store_rows<T, D, kColumns>(shared.k, dk, scales, g.dk + to, a.kv_stride, warp_row,
                             mask.keys - first, columns, size);
  store_rows<T, D, kColumns>(shared.v, dv, ones, g.dv + to, a.kv_stride, warp_row,
                             mask.keys - first, columns, size);
}

template <class T, int D>
void launch(cuda::Stream& stream, const AttentionBackwardArgs<T>& g,
            const BackwardScratch<T>& scratch) {
  const AttentionArgs<T>& a = g.forward;
  const dim3 grid(static_cast<unsigned>(ceil_div(a.keys, kRows)), static_cast<unsigned>(a.kv_heads),
                  static_cast<unsigned>(a.batch));
  with_scores(a, [&]<Scores Kind>() {
    with_warpgroup<D, Kind>(stream, [&]<bool Warpgroup>() {
      cuda::launch(stream, backward_keys<T, D, Kind, Warpgroup>, grid, kThreads<D>,
                   Shared<T, D>::bytes(Kind != Scores::plain), g, scratch);
    });
  });
}

}  // namespace

template <class T>
void tensor_backward_keys(cuda::Stream& stream, const AttentionBackwardArgs<T>& g,
                          const BackwardScratch<T>& scratch) {
  with_head_size(g.forward.head_size, [&]<int D>() { launch<T, D>(stream, g, scratch); });
}
template void tensor_backward_keys(cuda::Stream&, const AttentionBackwardArgs<bf16>&,
                                   const BackwardScratch<bf16>&);
template void tensor_backward_keys(cuda::Stream&, const AttentionBackwardArgs<f16>&,
                                   const BackwardScratch<f16>&);

}  // namespace tfm::kernels::gpu
