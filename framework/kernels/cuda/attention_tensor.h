#pragma once
// Products of tiles on tensor cores, and conversion of products to scores.
#include "kernels/cuda/attention_tile.h"
#include "kernels/cuda/attention_warpgroup.h"

namespace tfm::kernels::gpu {

// Calls f.operator()<warpgroup>(), where `warpgroup` tells whether tiles with D elements per row
// are multiplied by warpgroup instructions.
template <int D, Scores Kind, class F>
void with_warpgroup(cuda::Stream& stream, F&& f) {
  if constexpr ((D == 64 || D == 128) && Kind != Scores::landmarks)
    if (multiplies_by_warpgroups(stream)) return f.template operator()<true>();
  f.template operator()<false>();
}

// Rows [row, row + 16) of a tile of Rows as the left factor of products. If Held, read() loads them
// into registers; otherwise each product reads them.
template <class T, int D, bool Held, int Rows = kTensorRows>
class LeftFactor {
 public:
  __device__ LeftFactor(const T* tile, int row, const LanePlace<D>& lane)
      : tile_(tile + row * kPitch<D>), place_(lane.by_column) {}
  __device__ void read() {
    if constexpr (Held)
      TFM_UNROLL for (int k = 0; k < D / 16; ++k)
          cuda::ldmatrix(held_[k], tile_ + further<D, Rows>(place_, 2 * k));
  }
  // Columns [16 k, 16 k + 16).
  __device__ void part(int k, std::uint32_t (&to)[4]) const {
    if constexpr (Held)
      TFM_UNROLL for (int i = 0; i < 4; ++i) to[i] = held_[k][i];
    else
      cuda::ldmatrix(to, tile_ + further<D, Rows>(place_, 2 * k));
  }

 private:
  const T* tile_;
  // With a value before a loop that reads them in its first round: without, ptxas 13.0 lets other
  // values have their registers between the rounds of kernels for heads of 64.
  std::uint32_t place_, held_[Held ? D / 16 : 1][4] = {};
};

// c (16, N) += a b^T, where b has N rows. Warpgroup: by warpgroup instructions.
template <class T, int D, int N, bool Warpgroup, bool Held, int Rows>
__device__ void multiply_rows(float (&c)[N / 8][4], const LeftFactor<T, D, Held, Rows>& a,
                              const T* b, const LanePlace<D>& lane) {
  if constexpr (Warpgroup) {
    std::uint32_t fa[D / 16][4];
    TFM_UNROLL for (int k = 0; k < D / 16; ++k) a.part(k, fa[k]);
    cuda::warpgroup_begin(c, fa);
    TFM_UNROLL for (int k = 0; k < D / 16; ++k)
        cuda::warpgroup_mma<T, false, N, 0>(c, fa[k], b + k / 4 * N * 64 + k % 4 * 16);
    cuda::warpgroup_end(c);
  } else {
    TFM_UNROLL for (int k = 0; k < D / 8; k += 2) {
      std::uint32_t fa[4];
      a.part(k / 2, fa);
      TFM_UNROLL for (int n = 0; n < N / 8; n += 2) {
        std::uint32_t fb[4];
        cuda::ldmatrix(fb, b + further<D, N>(lane.by_row, k) + n * 8 * kPitch<D>);
        cuda::mma<T>(c[n], fa, fb[0], fb[1]);
        cuda::mma<T>(c[n + 1], fa, fb[2], fb[3]);
      }
    }
  }
}

// Converts columns [8 k, 8 k + 16) of an accumulator to a left factor.
template <class T, int K>
__device__ void to_left_factor(const float (&c)[K][4], int k, std::uint32_t (&a)[4]) {
  TFM_UNROLL for (int i = 0; i < 4; ++i) a[i] =
      cuda::pack2<T>(c[k + i / 2][i % 2 * 2], c[k + i / 2][i % 2 * 2 + 1]);
}

// c (16, N) += a b with an accumulator a (16, K) and N columns of a tile b with K rows. In a tile
// of panels, the columns are whole panels.
template <class T, int D, int K, int N, bool Warpgroup>
__device__ void multiply_columns(float (&c)[N / 8][4], const float (&a)[K / 8][4], const T* b,
                                 const LanePlace<D>& lane) {
  if constexpr (Warpgroup) {
    std::uint32_t fa[K / 16][4];
    TFM_UNROLL for (int k = 0; k < K / 16; ++k) to_left_factor<T>(a, 2 * k, fa[k]);
    cuda::warpgroup_begin(c, fa);
    TFM_UNROLL for (int k = 0; k < K / 16; ++k) {
      cuda::warpgroup_mma<T, true, 64, 0>(c, fa[k], b + k * 16 * 64);
      if constexpr (N == 128)
        cuda::warpgroup_mma<T, true, 64, 8>(c, fa[k], b + K * 64 + k * 16 * 64);
    }
    cuda::warpgroup_end(c);
  } else {
    TFM_UNROLL for (int k = 0; k < K / 8; k += 2) {
      std::uint32_t fa[4];
      to_left_factor<T>(a, k, fa);
      TFM_UNROLL for (int n = 0; n < N / 8; n += 2) {
        std::uint32_t fb[4];
        cuda::ldmatrix_transposed(fb, b + further<D, K>(lane.by_column, n) + k * 8 * kPitch<D>);
        cuda::mma<T>(c[n], fa, fb[0], fb[1]);
        cuda::mma<T>(c[n + 1], fa, fb[2], fb[3]);
      }
    }
  }
}

// Starts to copy the bias and the key segments for the scores of queries [first, first + Rows) and
// keys [first_key, first_key + N).
template <int Rows, int N, class T, bool Landmarks>
__device__ void load_beside(float* bias, std::int32_t* segments, const Head<T, Landmarks>& head,
                            int first, int first_key) {
  const AttentionArgs<T>& a = head.a;
  const auto& mask = head.mask;
  const int distance = first_key - first - (Rows - 1), thread = threadIdx.x;
  if (a.bias)
    load_words(bias, head.bias(), distance, Rows + N - 1, 1 - mask.queries, mask.keys, thread);
  if (mask.padding)
    load_words(segments, a.k_segments + a.segment_of_key(head.b, 0), first_key, N, 0, mask.keys,
               thread);
}

// Bias and key segments of a tile of scores, if there are any.
struct Beside {
  const float* bias;  // [s - t - first_distance]
  int first_distance;
  const std::int32_t* segments;  // of the columns
};

// The soft cap of a tile's scores, if there is one, and its slope.
template <Scores Kind, int N>
class SoftCap {
 public:
  // Returns what the elements, which change where there is a cap, are to be multiplied by to be
  // scores.
  template <class T>
  __device__ float apply(float (&c)[N][4], const AttentionArgs<T>& a) {
    if constexpr (!kMayCap) return a.scale * kLog2E;
    if (Kind == Scores::landmarks && !(a.softcap > 0)) {
      each_element<kHeld>([&](int n, int e) { slope_[n][e] = 1; });
      return a.scale * kLog2E;
    }
    const float inner = 2 * kLog2E * a.scale / a.softcap;
    each_element<N>([&](int n, int e) {
      const float t =
          1 - 2 * cuda::reciprocal_approximate(1 + cuda::exp2_approximate(inner * c[n][e]));
      slope_[n % kHeld][e] = 1 - t * t;
      c[n][e] = a.softcap * t;
    });
    return kLog2E;
  }
  // From gradients of scores to those of scaled products.
  __device__ void backward(float (&gradient)[N][4]) const {
    if constexpr (kMayCap)
      each_element<N>([&](int n, int e) { gradient[n][e] *= slope_[n % kHeld][e]; });
  }

 private:
  static constexpr bool kMayCap = Kind >= Scores::capped;
  static constexpr int kHeld = kMayCap ? N : 1;
  float slope_[kHeld][4];
};

// Converts products to scores, -inf if hidden. Rows are keys if KeysAreRows, else queries. `row`
// and `column` are those of this lane's element 0; row_segment holds the segments of its two rows.
// cut: whether some pair of the tile may be hidden by its position.
template <bool KeysAreRows, bool Added, bool Landmarks, int N>
__device__ void to_scores(float (&c)[N][4], float scale, const Mask<Landmarks>& mask, int row,
                          int column, bool cut, const std::int32_t (&row_segment)[2],
                          const Beside& beside, bool biased) {
  const auto each = [&](auto&& f) {
    each_element<N>([&](int n, int e) {
      const int r = row + e / 2 * 8, i = n * 8 + e % 2;
      f(c[n][e], KeysAreRows ? column + i : r, KeysAreRows ? r : column + i, row_segment[e / 2],
        i + 2 * LaneOf{}.t);
    });
  };
  each([&](float& x, int t, int s, std::int32_t, int) {
    x *= scale;
    if (Added && biased) x += kLog2E * beside.bias[s - t - beside.first_distance];
  });
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  if (cut)
    each([&](float& x, int t, int s, std::int32_t, int) { x = mask.sees(t, s) ? x : kHidden; });
  if (Added && mask.padding)
    each([&](float& x, int, int, std::int32_t own, int i) {
      const std::int32_t other = KeysAreRows && !mask.documents ? 0 : beside.segments[i];
      x = (KeysAreRows ? mask.same(other, own) : mask.same(own, other)) ? x : kHidden;
    });
}

// Bit 4 n + e is set if element e of the n-th 16 x 8 part of the accumulator is kept. Two lanes
// share the random block of four columns; each draws it for one of their two rows.
template <int N>
__device__ std::uint32_t kept_in_rows(const Dropped& dropped, int row, int column) {
  const LaneOf at;
  std::uint32_t own = 0;
  TFM_UNROLL for (int n = 0; n < N; ++n) own |=
      dropped.four(row + at.t % 2 * 8, column - 2 * at.t + n * 8 + at.t / 2 * 4) << 4 * n;
  const std::uint32_t other = cuda::shuffle_xor(own, 1);
  const std::uint32_t low = at.t % 2 ? other : own, high = at.t % 2 ? own : other;
  const int shift = at.t % 2 * 2;
  return (low >> shift & 0x33333333u) | (high >> shift & 0x33333333u) << 2;
}

}  // namespace tfm::kernels::gpu
