// Backward of short sequences on tensor cores: a block has all queries and keys of one key head and
// goes through the query heads that read it, so that all gradients come from one pass. A warp owns
// 16 queries and 16 keys; weights and gradients of scores change owners in shared memory.
#include "kernels/cuda/attention_scores.h"
#include "kernels/cuda/attention_tensor.h"

namespace tfm::kernels::gpu {
namespace {

// Rows: queries and keys that a block can have.
template <int Rows>
constexpr int kThreads = 2 * Rows;

template <class T, int D, int Rows>
struct Shared {
  static constexpr int kTile = Rows * D, kSquare = Rows * Rows;
  T* q = cuda::shared_memory<T>();                                                // (Rows, D)
  T* dout = q + kTile;                                                            // (Rows, D)
  T* k = dout + kTile;                                                            // (Rows, D)
  T* v = k + kTile;                                                               // (Rows, D)
  T* weights = v + kTile;                                                         // (Rows, Rows)
  T* gradients = weights + kSquare;                                               // (Rows, Rows)
  std::int32_t* segments = reinterpret_cast<std::int32_t*>(gradients + kSquare);  // (Rows)
  static constexpr std::size_t bytes(bool added) {
    return (4 * kTile + 2 * kSquare) * sizeof(T) + (added ? Rows * 4 : 0);
  }
};

// From scores and gradients of the dropped weights to those weights and the gradients of the
// scores. Of a row, four lanes have a quarter each.
template <bool Added, class T, bool Landmarks, int N>
__device__ void to_gradients(float (&score)[N][4], float (&gradient)[N][4],
                             const Head<T, Landmarks>& head, const float (&base)[2], int row,
                             int column) {
  const Dropout& dropout = head.a.dropout;
  const bool drops = Added && dropout.p > 0;
  const float kept_scale = drops ? dropout.scale() : 1.0f;
  const std::uint32_t kept = drops ? kept_in_rows<N>(Dropped(head), row, column) : ~0u;
  float delta[2] = {0, 0};  // sums of weights times their gradients, which are those of out * dout
  each_element<N>([&](int n, int e) {
    score[n][e] = cuda::exp2_approximate(score[n][e] - base[e / 2]);
    gradient[n][e] *= kept >> (4 * n + e) & 1 ? kept_scale : 0.0f;
    delta[e / 2] += score[n][e] * gradient[n][e];
  });
  TFM_UNROLL for (float& sum : delta) {
    sum += cuda::shuffle_xor(sum, 1);
    sum += cuda::shuffle_xor(sum, 2);
  }
  each_element<N>([&](int n, int e) {
    gradient[n][e] = score[n][e] * (gradient[n][e] - delta[e / 2]);
    score[n][e] *= kept >> (4 * n + e) & 1 ? kept_scale : 0.0f;
  });
}

// Stores c as rows [row, row + 16) of a square tile.
template <class T, int Rows>
__device__ void put_rows(T* square, const float (&c)[Rows / 8][4], int row) {
  const LaneOf at;
  TFM_UNROLL for (int n = 0; n < Rows / 8; ++n) {
    TFM_UNROLL for (int half = 0; half < 2; ++half)
        cuda::store(square + place<Rows, Rows>(row + at.g + half * 8, n) + 2 * at.t,
                    cuda::pack2<T>(c[n][2 * half], c[n][2 * half + 1]));
  }
}

// c (16, D) += a^T b, where a is columns [column, column + 16) of a square tile.
template <class T, int D, int Rows>
__device__ void multiply_transposed(float (&c)[D / 8][4], const T* square, int column, const T* b,
                                    const LanePlace<Rows>& lane, const LanePlace<D>& lane_of_b) {
  TFM_UNROLL for (int k = 0; k < Rows; k += 16) {
    std::uint32_t fa[4];
    cuda::ldmatrix_transposed(
        fa, square + further<Rows, Rows>(lane.by_row, column / 8) + k * kPitch<Rows>);
    TFM_UNROLL for (int n = 0; n < D / 8; n += 2) {
      std::uint32_t fb[4];
      cuda::ldmatrix_transposed(fb, b + further<D, Rows>(lane_of_b.by_column, n) + k * kPitch<D>);
      cuda::mma<T>(c[n], fa, fb[0], fb[1]);
      cuda::mma<T>(c[n + 1], fa, fb[2], fb[3]);
    }
  }
}

template <class T, int D, int Rows, Scores Kind>
__global__ void __launch_bounds__(kThreads<Rows>, D <= 64 && Rows < kTensorRows ? 6 : 1)
    backward_short(const __grid_constant__ AttentionBackwardArgs<T> g, const std::int32_t* real) {
  constexpr bool Added = Kind != Scores::plain;
  const Shared<T, D, Rows> shared;
  const AttentionArgs<T>& a = g.forward;
  const LaneOf at;
  const LanePlace<D> lane;
  const LanePlace<Rows> lane_of_square;
  const int group = static_cast<int>(a.heads / a.kv_heads), size = static_cast<int>(a.head_size),
            warp_row = threadIdx.x / 32 * 16, row = warp_row + at.g;
  Head<T, Kind == Scores::landmarks> head(a, real, blockIdx.z, blockIdx.y * group);
  const auto& mask = head.mask;
  const int end = head.h + group;
  using Load = Loader<T, D, Rows, kThreads<Rows>>;
  Load(a.k + head.kv_at(), a.kv_stride, 0, mask.real, size).start(shared.k);
  Load(a.v + head.kv_at(), a.kv_stride, 0, mask.real, size).start(shared.v);
  const std::int32_t segment[2] = {Added ? head.q_segment(row) : 0,
                                   Added ? head.q_segment(row + 8) : 0};
  const float ones[2] = {1, 1}, scales[2] = {a.scale, a.scale};
  float dk[D / 8][4] = {}, dv[D / 8][4] = {};
  for (; head.h < end; ++head.h) {
    Load(a.q + head.q_at(), a.q_stride, 0, mask.queries, size).start(shared.q);
    Load(g.dout + head.out_at(), a.out_stride, 0, mask.queries, size).start(shared.dout);
    if constexpr (Added) load_beside<Rows, Rows>(nullptr, shared.segments, head, 0, 0);
    cuda::copy_async_commit();
    float base[2];
    TFM_UNROLL for (int half = 0; half < 2; ++half) {
      const int t = row + half * 8;
      const float lse = t < mask.queries ? a.lse[head.lse_at() + t] : 0.0f;
      base[half] = lse == -std::numeric_limits<float>::infinity() ? 0.0f : lse * kLog2E;
    }
    cuda::copy_async_wait<0>();
    cuda::block_barrier();  // this head is there
    float dq[D / 8][4] = {};
    {
      const LeftFactor<T, D, false, Rows> queries(shared.q, warp_row, lane),
          douts(shared.dout, warp_row, lane);
      float score[Rows / 8][4] = {}, gradient[Rows / 8][4] = {};
      multiply_rows<T, D, Rows, false>(score, queries, shared.k, lane);
      multiply_rows<T, D, Rows, false>(gradient, douts, shared.v, lane);
      SoftCap<Kind, Rows / 8> cap;
      const float scale = cap.apply(score, a);
      to_scores<false, Added>(score, scale, mask, row, 2 * at.t,
                              mask.cuts({warp_row, warp_row + 16}, {0, Rows}), segment,
                              Beside{nullptr, 0, shared.segments}, false);
      to_gradients<Added>(score, gradient, head, base, row, 2 * at.t);
      cap.backward(gradient);
      put_rows<T, Rows>(shared.weights, score, warp_row);
      put_rows<T, Rows>(shared.gradients, gradient, warp_row);
      multiply_columns<T, D, Rows, D, false>(dq, gradient, shared.k, lane);
    }
    cuda::block_barrier();  // weights and gradients are there
    multiply_transposed<T, D, Rows>(dv, shared.weights, warp_row, shared.dout, lane_of_square,
                                    lane);
    multiply_transposed<T, D, Rows>(dk, shared.gradients, warp_row, shared.q, lane_of_square, lane);
    cuda::block_barrier();  // nobody needs this head any more
    store_rows<T, D, D, Rows>(shared.q, dq, scales, g.dq + head.q_at(), a.q_stride, warp_row,
                              mask.queries, 0, size);
    if (head.h + 1 < end) cuda::block_barrier();  // gradients of queries have left
  }
  store_rows<T, D, D, Rows>(shared.k, dk, scales, g.dk + head.kv_at(), a.kv_stride, warp_row,
                            mask.keys, 0, size);
  store_rows<T, D, D, Rows>(shared.v, dv, ones, g.dv + head.kv_at(), a.kv_stride, warp_row,
                            mask.keys, 0, size);
}

template <class T, int D, int Rows>
void launch(cuda::Stream& stream, const AttentionBackwardArgs<T>& g, const std::int32_t* real) {
  const AttentionArgs<T>& a = g.forward;
  const dim3 grid(1, static_cast<unsigned>(a.kv_heads), static_cast<unsigned>(a.batch));
  with_scores(a, [&]<Scores Kind>() {
    cuda::launch(stream, backward_short<T, D, Rows, Kind>, grid, kThreads<Rows>,
                 Shared<T, D, Rows>::bytes(Kind != Scores::plain), g, real);
  });
}

}  // namespace

template <class T>
void tensor_backward_short(cuda::Stream& stream, const AttentionBackwardArgs<T>& g,
                           const std::int32_t* real) {
  const AttentionArgs<T>& a = g.forward;
  with_flag(std::max(a.queries, a.keys) <= kFew, [&]<bool Few>() {
    constexpr int kRows = Few ? kFew : kTensorRows;
    a.head_size <= 64 ? launch<T, 64, kRows>(stream, g, real)
                      : launch<T, 128, kRows>(stream, g, real);
  });
}
template void tensor_backward_short(cuda::Stream&, const AttentionBackwardArgs<bf16>&,
                                    const std::int32_t*);
template void tensor_backward_short(cuda::Stream&, const AttentionBackwardArgs<f16>&,
                                    const std::int32_t*);

}  // namespace tfm::kernels::gpu
