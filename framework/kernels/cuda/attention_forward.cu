// Forward on tensor cores: a block owns 64 queries of one head, or 32 of short sequences, a warp 16
// of them, and goes through the keys with an online softmax (Milakov and Gimelshein 2018). Keys and
// values have two buffers each: one is multiplied while the next tile arrives.
#include "kernels/cuda/attention_scores.h"
#include "kernels/cuda/attention_tensor.h"

namespace tfm::kernels::gpu {
namespace {

template <int Rows>
constexpr int kThreads = 2 * Rows;
template <int D, int Rows>
constexpr int kKeys = D <= 128 ? Rows : 32;  // of a tile

template <class T, int D, int Rows>
struct Shared {
  static constexpr int kTile = kKeys<D, Rows> * D, kWindow = Rows + kKeys<D, Rows>;
  T* q = cuda::shared_memory<T>();                                               // (Rows, D)
  T* k = q + Rows * D;                                                           // (2, kKeys, D)
  T* v = k + 2 * kTile;                                                          // (2, kKeys, D)
  float* bias = reinterpret_cast<float*>(v + 2 * kTile);                         // (2, kWindow)
  std::int32_t* segments = reinterpret_cast<std::int32_t*>(bias + 2 * kWindow);  // (2, kKeys)
  static constexpr std::size_t bytes(bool added) {
    return (Rows * D + 4 * kTile) * sizeof(T) + (added ? 2 * (kWindow + kKeys<D, Rows>)*4 : 0);
  }
};

// This lane's part of the running softmax of its two rows: of `sum`, four lanes have a quarter
// each.
struct Softmax {
  float max[2] = {-std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
  float sum[2] = {0, 0};

  // From scores to exponentials relative to the new maximum; rescales what was added to `out`
  // before.
  template <int N, int M>
  __device__ void add(float (&score)[N][4], float (&out)[M][4]) {
    TFM_UNROLL for (int half = 0; half < 2; ++half) {
      float top = max[half];
      TFM_UNROLL for (int n = 0; n < N; ++n) top =
          fmaxf(top, fmaxf(score[n][2 * half], score[n][2 * half + 1]));
      top = fmaxf(top, cuda::shuffle_xor(top, 1));
      top = fmaxf(top, cuda::shuffle_xor(top, 2));
      const float base =
          top == -std::numeric_limits<float>::infinity() ? 0.0f : top;  // nothing visible so far
      const float rescale = cuda::exp2_approximate(max[half] - base);
      max[half] = top;
      float added = 0;
      TFM_UNROLL for (int n = 0; n < N; ++n) {
        TFM_UNROLL for (int e = 2 * half; e < 2 * half + 2; ++e) {
          score[n][e] = cuda::exp2_approximate(score[n][e] - base);
          added += score[n][e];
        }
      }
      sum[half] = sum[half] * rescale + added;
      TFM_UNROLL for (int m = 0; m < M; ++m) out[m][2 * half] *= rescale,
          out[m][2 * half + 1] *= rescale;
    }
  }
};

// Zeroes the weights that dropout drops; what it multiplies the others with is left to the end.
template <class T, bool Landmarks, int N>
__device__ void drop(float (&weight)[N][4], const Head<T, Landmarks>& head, int row, int column) {
  const std::uint32_t kept = kept_in_rows<N>(Dropped(head), row, column);
  each_element<N>(
      [&](int n, int e) { weight[n][e] = kept >> (4 * n + e) & 1 ? weight[n][e] : 0.0f; });
}

template <class T, int D, int Rows, Scores Kind, bool Warpgroup>
__global__ void __launch_bounds__(kThreads<Rows>, (D <= 64 ? 3 : 2) * kTensorRows / Rows)
    forward(const __grid_constant__ AttentionArgs<T> a, const std::int32_t* real) {
  constexpr int N = kKeys<D, Rows>, kTile = N * D, kWindow = Rows + N;
  constexpr bool Added = Kind != Scores::plain;
  const Shared<T, D, Rows> shared;
  const Head<T, Kind == Scores::landmarks> head(a, real, blockIdx.z, blockIdx.y);
  const auto& mask = head.mask;
  const LaneOf at;
  const LanePlace<D> lane;
  const int first = tile_of_queries(a.visible) * Rows, size = static_cast<int>(a.head_size),
            warp_row = threadIdx.x / 32 * 16, row = first + warp_row + at.g;
  const Tiles tiles = mask.template keys_of<N>(first, Rows);
  float out[D / 8][4] = {};
  Softmax softmax;
  const std::int32_t segment[2] = {Added ? head.q_segment(row) : 0,
                                   Added ? head.q_segment(row + 8) : 0};
  Loader<T, D, N, kThreads<Rows>> keys(a.k + head.kv_at(), a.kv_stride, tiles.begin, tiles.end,
                                       size),
      values(a.v + head.kv_at(), a.kv_stride, tiles.begin, tiles.end, size);
  const auto load_keys = [&](int j, int key) {
    if (key < tiles.end) {
      keys.start(shared.k + j % 2 * kTile);
      if constexpr (Added)
        load_beside<Rows, N>(shared.bias + j % 2 * kWindow, shared.segments + j % 2 * N, head,
                             first, key);
    }
    cuda::copy_async_commit();
  };
  const auto load_values = [&](int j, int key) {
    if (key < tiles.end) values.start(shared.v + j % 2 * kTile);
    cuda::copy_async_commit();
  };
  if (tiles.count > 0)
    Loader<T, D, Rows, kThreads<Rows>>(a.q + head.q_at(), a.q_stride, first, mask.queries, size)
        .start(shared.q);
  load_keys(0, tiles.begin);
  load_values(0, tiles.begin);
  LeftFactor<T, D, D <= 128, Rows> queries(shared.q, warp_row, lane);
  for (int j = 0, key = tiles.begin, next; key < tiles.end; ++j, key = next) {
    next = mask.template keys_after<N>(first, Rows, key + N);
    if constexpr (Kind == Scores::landmarks) keys.skip(next - key - N), values.skip(next - key - N);
    load_keys(j + 1, next);
    cuda::copy_async_wait<2>();
    if constexpr (Warpgroup) cuda::show_to_warpgroups();
    cuda::block_barrier();  // keys j and, at first, the queries are there
    if (j == 0) queries.read();
    float score[N / 8][4] = {};
    multiply_rows<T, D, N, Warpgroup>(score, queries, shared.k + j % 2 * kTile, lane);
    const Beside beside{shared.bias + j % 2 * kWindow, key - first - (Rows - 1),
                        shared.segments + j % 2 * N};
    const float scale = SoftCap<Kind, N / 8>().apply(score, a);
    to_scores<false, Added>(score, scale, mask, row, key + 2 * at.t,
                            mask.cuts({first + warp_row, first + warp_row + 16}, {key, key + N}),
                            segment, beside, a.bias != nullptr);
    softmax.add(score, out);
    if (Added && a.dropout.p > 0) drop(score, head, row, key + 2 * at.t);
    load_values(j + 1, next);
    cuda::copy_async_wait<2>();
    if constexpr (Warpgroup) cuda::show_to_warpgroups();
    cuda::block_barrier();  // values j are there; nobody needs keys j any more
    multiply_columns<T, D, N, D, Warpgroup>(out, score, shared.v + j % 2 * kTile, lane);
  }
  float factor[2];
  TFM_UNROLL for (int half = 0; half < 2; ++half) {
    float sum = softmax.sum[half];
    sum += cuda::shuffle_xor(sum, 1);
    sum += cuda::shuffle_xor(sum, 2);
    factor[half] = sum > 0 ? (Added ? a.dropout.scale() : 1.0f) / sum : 0.0f;
    const int t = row + half * 8;
    if (at.t == 0 && t < mask.queries)
      a.lse[head.lse_at() + t] = sum > 0 ? (softmax.max[half] + cuda::log2_approximate(sum)) * kLn2
                                         : -std::numeric_limits<float>::infinity();
  }
  store_rows<T, D, D, Rows>(shared.q, out, factor, a.out + head.out_at() + first * a.out_stride,
                            a.out_stride, warp_row, mask.queries - first, 0, size);
}

template <class T, int D, int Rows>
void launch(cuda::Stream& stream, const AttentionArgs<T>& a, const std::int32_t* real) {
  const dim3 grid(static_cast<unsigned>(ceil_div(a.queries, Rows)), static_cast<unsigned>(a.heads),
                  static_cast<unsigned>(a.batch));
  with_scores(a, [&]<Scores Kind>() {
    const auto with = [&]<bool Warpgroup>() {
      cuda::launch(stream, forward<T, D, Rows, Kind, Warpgroup>, grid, kThreads<Rows>,
                   Shared<T, D, Rows>::bytes(Kind != Scores::plain), a, real);
    };
    if constexpr (Rows == kTensorRows)
      with_warpgroup<D, Kind>(stream, with);
    else
      with.template operator()<false>();
  });
}

}  // namespace

template <class T>
void tensor_forward(cuda::Stream& stream, const AttentionArgs<T>& a, const std::int32_t* real) {
  with_head_size(a.head_size, [&]<int D>() {
    if constexpr (D <= 128)
      if (std::max(a.queries, a.keys) <= kFew) return launch<T, D, kFew>(stream, a, real);
    launch<T, D, kTensorRows>(stream, a, real);
  });
}
template void tensor_forward(cuda::Stream&, const AttentionArgs<bf16>&, const std::int32_t*);
template void tensor_forward(cuda::Stream&, const AttentionArgs<f16>&, const std::int32_t*);

}  // namespace tfm::kernels::gpu
