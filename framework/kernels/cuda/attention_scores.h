#pragma once
// From products of a tile, as accumulators hold them, to scores: what stands beside them, soft
// caps, what is hidden and what dropout keeps.
#include "kernels/cuda/attention_tile.h"

namespace tfm::kernels::gpu {

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
