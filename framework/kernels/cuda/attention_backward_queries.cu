// Gradients of queries, and of the bias by distance, on tensor cores: a block owns 64 queries of
// one head and goes through the keys.
#include "kernels/cuda/attention_diagonals.h"
#include "kernels/cuda/attention_scores.h"
#include "kernels/cuda/attention_tensor.h"

namespace tfm::kernels::gpu {
namespace {

constexpr int kThreads = 128, kRows = kTensorRows;
template <int D>
constexpr int kKeys = D <= 64    ? 64
                      : D <= 128 ? 32
                                 : 16;  // of a tile
template <int D>
constexpr bool kHeld =
    D <= 128 && D != 96;  // queries stay in registers where that leaves as many blocks room

template <class T, int D>
struct Shared {
  static constexpr int kTile = kKeys<D> * D, kWindow = kRows + kKeys<D>, kGradients = kKeys<D> + 1;
  T* q = cuda::shared_memory<T>();                                               // (kRows, D)
  T* dout = q + kRows * D;                                                       // (kRows, D)
  T* k = dout + kRows * D;                                                       // (2, kKeys, D)
  T* v = k + 2 * kTile;                                                          // (2, kKeys, D)
  float* bias = reinterpret_cast<float*>(v + 2 * kTile);                         // (2, kWindow)
  std::int32_t* segments = reinterpret_cast<std::int32_t*>(bias + 2 * kWindow);  // (2, kKeys)
  float* gradients =
      reinterpret_cast<float*>(segments + 2 * kKeys<D>);  // (kRows, kGradients) for diagonals
  float* carry = gradients + kRows * kGradients;          // (2, kRows)
  static constexpr std::size_t bytes(bool added, bool diagonals) {
    return (2 * kRows * D + 4 * kTile) * sizeof(T) + (added ? 2 * (kWindow + kKeys<D>)*4 : 0) +
           (diagonals ? kRows * (kGradients + 2) * 4 : 0);
  }
};

// From gradients of the dropped weights to gradients of the scores.
template <bool Added, class T, bool Landmarks, int N>
__device__ void to_gradients(const float (&score)[N][4], float (&gradient)[N][4],
                             const Head<T, Landmarks>& head, const float (&base)[2],
                             const float (&delta)[2], int row, int column) {
  const Dropout& dropout = head.a.dropout;
  const bool drops = Added && dropout.p > 0;
  const float kept_scale = drops ? dropout.scale() : 1.0f;
  const std::uint32_t kept = drops ? kept_in_rows<N>(Dropped(head), row, column) : ~0u;
  each_element<N>([&](int n, int e) {
    const float factor = kept >> (4 * n + e) & 1 ? kept_scale : 0.0f;
    gradient[n][e] = cuda::exp2_approximate(score[n][e] - base[e / 2]) *
                     (gradient[n][e] * factor - delta[e / 2]);
  });
}

template <class T, int D, Scores Kind, bool Warpgroup>
__global__ void __launch_bounds__(kThreads, 2)
    backward_queries(const __grid_constant__ AttentionBackwardArgs<T> g,
                     const __grid_constant__ BackwardScratch<T> scratch) {
  constexpr int N = kKeys<D>, kTile = N * D, kWindow = kRows + N,
                kGradients = Shared<T, D>::kGradients;
  constexpr bool Added = Kind != Scores::plain, Landmarks = Kind == Scores::landmarks;
  const Shared<T, D> shared;
  const AttentionArgs<T>& a = g.forward;
  const Head<T, Landmarks> head(a, scratch.real, blockIdx.z, blockIdx.y);
  const auto& mask = head.mask;
  const LaneOf at;
  const LanePlace<D> lane;
  const unsigned tile = tile_of_queries(a.visible);
  const int first = tile * kRows, size = static_cast<int>(a.head_size),
            warp_row = threadIdx.x / 32 * 16, row = first + warp_row + at.g;
  const Tiles tiles = mask.template keys_of<N>(first, kRows);
  float* diagonals = diagonals_of_block(scratch, tile);
  const std::int32_t segment[2] = {Added ? head.q_segment(row) : 0,
                                   Added ? head.q_segment(row + 8) : 0};
  float base[2], delta[2];
  TFM_UNROLL for (int half = 0; half < 2; ++half) {
    const int t = row + half * 8;
    base[half] = t < mask.queries ? scratch.base[head.lse_at() + t] : 0.0f;
    delta[half] = t < mask.queries ? scratch.delta[head.lse_at() + t] : 0.0f;
  }
  float dq[D / 8][4] = {};
  Loader<T, D, N, kThreads> keys(a.k + head.kv_at(), a.kv_stride, tiles.begin, tiles.end, size),
      values(a.v + head.kv_at(), a.kv_stride, tiles.begin, tiles.end, size);
  const auto load = [&](int j, int key) {
    if (key < tiles.end) {
      keys.start(shared.k + j % 2 * kTile);
      values.start(shared.v + j % 2 * kTile);
      if constexpr (Added)
        load_beside<kRows, N>(shared.bias + j % 2 * kWindow, shared.segments + j % 2 * N, head,
                              first, key);
    }
    cuda::copy_async_commit();
  };
  if (tiles.count > 0) {
    Loader<T, D, kRows, kThreads>(a.q + head.q_at(), a.q_stride, first, mask.queries, size)
        .start(shared.q);
    Loader<T, D, kRows, kThreads>(g.dout + head.out_at(), a.out_stride, first, mask.queries, size)
        .start(shared.dout);
  }
  load(0, tiles.begin);
  LeftFactor<T, D, kHeld<D>> queries(shared.q, warp_row, lane), douts(shared.dout, warp_row, lane);
  for (int j = 0, key = tiles.begin, next; key < tiles.end; ++j, key = next) {
    const int stage = j % 2;
    next = key + N;
    if (Landmarks && !diagonals) {  // whose sums go on from tile to tile
      next = mask.template keys_after<N>(first, kRows, next);
      keys.skip(next - key - N), values.skip(next - key - N);
    }
    load(j + 1, next);
    cuda::copy_async_wait<1>();
    if constexpr (Warpgroup) cuda::show_to_warpgroups();
    cuda::block_barrier();  // this tile and, at first, the queries are there
    if (j == 0) queries.read(), douts.read();
    const T* k = shared.k + stage * kTile;
    float score[N / 8][4] = {}, gradient[N / 8][4] = {};
    multiply_rows<T, D, N, Warpgroup>(score, queries, k, lane);
    multiply_rows<T, D, N, Warpgroup>(gradient, douts, shared.v + stage * kTile, lane);
    const Beside beside{shared.bias + stage * kWindow, key - first - (kRows - 1),
                        shared.segments + stage * N};
    SoftCap<Kind, N / 8> cap;
    const float scale = cap.apply(score, a);
    to_scores<false, Added>(score, scale, mask, row, key + 2 * at.t,
                            mask.cuts({first + warp_row, first + warp_row + 16}, {key, key + N}),
                            segment, beside, a.bias != nullptr);
    to_gradients<Added>(score, gradient, head, base, delta, row, key + 2 * at.t);
    if constexpr (Added)
      if (diagonals)
        each_element<N / 8>([&](int n, int e) {
          shared.gradients[(warp_row + at.g + e / 2 * 8) * kGradients + n * 8 + 2 * at.t + e % 2] =
              gradient[n][e];
        });
    cap.backward(gradient);
    multiply_columns<T, D, N, D, Warpgroup>(dq, gradient, k, lane);
    if constexpr (Added) {
      if (diagonals) {
        cuda::block_barrier();  // all rows of the gradients are there
        add_diagonals<kRows, N>(shared.gradients, kGradients, shared.carry, diagonals + tiles.begin,
                                j, threadIdx.x, kThreads);
      }
    }
    cuda::block_barrier();  // nobody needs this tile any more
  }
  const float scales[2] = {a.scale, a.scale};
  store_rows<T, D, D>(shared.q, dq, scales, g.dq + head.q_at() + first * a.q_stride, a.q_stride,
                      warp_row, mask.queries - first, 0, size);
  if constexpr (Added)
    if (diagonals)
      finish_diagonals<kRows, N>(shared.carry, diagonals, scratch.width, tiles, threadIdx.x,
                                 kThreads);
}

template <class T, int D>
void launch(cuda::Stream& stream, const AttentionBackwardArgs<T>& g,
            const BackwardScratch<T>& scratch) {
  const AttentionArgs<T>& a = g.forward;
  const dim3 grid(static_cast<unsigned>(ceil_div(a.queries, kRows)), static_cast<unsigned>(a.heads),
                  static_cast<unsigned>(a.batch));
  const auto with = [&]<Scores Kind>() {
    with_warpgroup<D, Kind>(stream, [&]<bool Warpgroup>() {
      cuda::launch(stream, backward_queries<T, D, Kind, Warpgroup>, grid, kThreads,
                   Shared<T, D>::bytes(Kind != Scores::plain, g.dbias), g, scratch);
    });
  };
  with_scores(a, with, g.dbias != nullptr);
}

}  // namespace

template <class T>
void tensor_backward_queries(cuda::Stream& stream, const AttentionBackwardArgs<T>& g,
                             const BackwardScratch<T>& scratch) {
  with_head_size(g.forward.head_size, [&]<int D>() { launch<T, D>(stream, g, scratch); });
}
template void tensor_backward_queries(cuda::Stream&, const AttentionBackwardArgs<bf16>&,
                                      const BackwardScratch<bf16>&);
template void tensor_backward_queries(cuda::Stream&, const AttentionBackwardArgs<f16>&,
                                      const BackwardScratch<f16>&);

}  // namespace tfm::kernels::gpu
