#pragma once
// Tiles of 16-bit elements in shared memory and their products on tensor cores. A tile has D
// elements a row; chunks of eight change places within a row so that the eight rows which one
// ldmatrix reads lie in different banks.
#include "kernels/cuda/attention_parts.h"

namespace tfm::kernels::gpu {

template <int D>
__device__ int place(int row, int chunk) {
  return row * D + (chunk ^ (D % 64 == 0 ? row % 8 : row / 2 % 4)) * 8;
}

// The place that is an even number of chunks further in the row of a place in chunk 0 or 1.
template <int D>
__device__ std::uint32_t further(std::uint32_t place, int chunks) {
  constexpr int kMixed = D % 64 == 0 ? 8 : 4;
  return (place ^ chunks % kMixed * 8) + chunks / kMixed * kMixed * 8;
}

// The row that this lane brings to ldmatrix in the first 16 x 16 elements of a tile, whose quarters
// are read column by column or row by row.
template <int D>
struct LanePlace {
  std::uint32_t by_column = place<D>(threadIdx.x % 16, threadIdx.x / 16 % 2),
                by_row = place<D>(threadIdx.x / 16 % 2 * 8 + threadIdx.x % 8, threadIdx.x / 8 % 2);
  __device__ LanePlace() {
    cuda::hide(by_column), cuda::hide(by_row);
  }  // computed once, not in each tile
};

// Of this lane in a 16 x 8 accumulator: element e is row g + e / 2 * 8, column 2 t + e % 2.
struct LaneOf {
  int lane = threadIdx.x % 32;
  int g = lane / 4, t = lane % 4;
};

// f(n, e) for each element that a lane holds of N accumulators side by side.
template <int N, class F>
__device__ void each_element(F&& f) {
  TFM_UNROLL for (int n = 0; n < N; ++n) { TFM_UNROLL for (int e = 0; e < 4; ++e) f(n, e); }
}

// Copies tiles of Rows rows, of `size` elements each, from row `first` on; zeros from row `end` and
// element `size` on.
template <class T, int D, int Rows, int Threads>
class Loader {
 public:
  Loader() = default;
  __device__ Loader(const T* from, std::int64_t stride, int first, int end, int size)
      : step_(kDown * stride) {
    const int row = threadIdx.x / kAcross, chunk = threadIdx.x % kAcross;
    from_ = from + (first + row) * stride + chunk * 8;
    rows_ = end - first - row, elements_ = size - chunk * 8, place_ = place<D>(row, chunk);
  }
  // Starts to copy the next tile.
  __device__ void start(T* tile) {
    TFM_UNROLL for (int row = 0; row < Rows; row += kDown, from_ += step_) {
      TFM_UNROLL for (int element = 0; element < D; element += kAcross * 8)
          cuda::copy_async<16>(tile + (place_ ^ row % 8 * 8) + row * D + element, from_ + element,
                               row < rows_ && element < elements_ ? 16 : 0);
    }
    rows_ -= Rows;
  }

 private:
  static constexpr int kAcross = D / 8 & -(D / 8),
                       kDown = Threads / kAcross;  // threads: a power of 2 side by side
  static_assert(Rows % kDown == 0 && (D % 64 == 0 || kDown % 8 == 0));
  const T* from_;  // of this thread, as all that follows
  std::int64_t step_;
  int rows_, elements_, place_;  // to the ends; in the tile
};

// Starts to copy what is beside the scores of Rows queries from `first` on and N keys from
// `first_key` on.
template <int Rows, int N, class T>
__device__ void load_beside(float* bias, std::int32_t* segments, const Head<T>& head, int first,
                            int first_key) {
  const AttentionArgs<T>& a = head.a;
  const Mask& mask = head.mask;
  const int distance = first_key - first - (Rows - 1), thread = threadIdx.x;
  if (a.bias)
    load_words(bias, head.bias(), distance, Rows + N - 1, 1 - mask.queries, mask.keys, thread);
  if (mask.padding)
    load_words(segments, a.k_segments + a.segment_of_key(head.b, 0), first_key, N, 0, mask.keys,
               thread);
}

// Sixteen rows of a tile as the left factor of products: Held in registers from read() on, or read
// for each product.
template <class T, int D, bool Held>
class LeftFactor {
 public:
  __device__ LeftFactor(const T* tile, const LanePlace<D>& lane)
      : tile_(tile), place_(lane.by_column) {}
  __device__ void read() {
    if constexpr (Held)
      TFM_UNROLL for (int k = 0; k < D / 16; ++k)
          cuda::ldmatrix(held_[k], tile_ + further<D>(place_, 2 * k));
  }
  // Columns [16 k, 16 k + 16).
  __device__ void part(int k, std::uint32_t (&to)[4]) const {
    if constexpr (Held)
      TFM_UNROLL for (int i = 0; i < 4; ++i) to[i] = held_[k][i];
    else
      cuda::ldmatrix(to, tile_ + further<D>(place_, 2 * k));
  }

 private:
  const T* tile_;
  std::uint32_t place_, held_[Held ? D / 16 : 1][4];
};

// c (16, N) += a b^T: against N rows of tile b.
template <class T, int D, int N, bool Held>
__device__ void multiply_rows(float (&c)[N / 8][4], const LeftFactor<T, D, Held>& a, const T* b,
                              const LanePlace<D>& lane) {
  TFM_UNROLL for (int k = 0; k < D / 8; k += 2) {
    std::uint32_t fa[4];
    a.part(k / 2, fa);
    TFM_UNROLL for (int n = 0; n < N / 8; n += 2) {
      std::uint32_t fb[4];
      cuda::ldmatrix(fb, b + further<D>(lane.by_row, k) + n * 8 * D);
      cuda::mma<T>(c[n], fa, fb[0], fb[1]);
      cuda::mma<T>(c[n + 1], fa, fb[2], fb[3]);
    }
  }
}

// c (16, N) += a b: an accumulator (16, K) against K rows of N columns of a tile, the first of
// which is a multiple of 64.
template <class T, int D, int K, int N>
__device__ void multiply_columns(float (&c)[N / 8][4], const float (&a)[K / 8][4], const T* b,
                                 const LanePlace<D>& lane) {
  TFM_UNROLL for (int k = 0; k < K / 8; k += 2) {
    const std::uint32_t fa[4] = {cuda::pack2<T>(a[k][0], a[k][1]), cuda::pack2<T>(a[k][2], a[k][3]),
                                 cuda::pack2<T>(a[k + 1][0], a[k + 1][1]),
                                 cuda::pack2<T>(a[k + 1][2], a[k + 1][3])};
    TFM_UNROLL for (int n = 0; n < N / 8; n += 2) {
      std::uint32_t fb[4];
      cuda::ldmatrix_transposed(fb, b + further<D>(lane.by_column, n) + k * 8 * D);
      cuda::mma<T>(c[n], fa, fb[0], fb[1]);
      cuda::mma<T>(c[n + 1], fa, fb[2], fb[3]);
    }
  }
}

// Rows [row, row + 16) and columns [first, first + N) of a tile that only this warp still uses: c
// times factor[e / 2], by way of shared memory, to `to`, whose first row is the tile's.
template <class T, int D, int N>
__device__ void store_rows(T* tile, const float (&c)[N / 8][4], const float (&factor)[2], T* to,
                           std::int64_t stride, int row, int end, int first, int size) {
  const LaneOf at;
  TFM_UNROLL for (int n = 0; n < N / 8; ++n) {
    TFM_UNROLL for (int half = 0; half < 2; ++half) cuda::store(
        tile + place<D>(row + at.g + half * 8, first / 8 + n) + 2 * at.t,
        cuda::pack2<T>(c[n][2 * half] * factor[half], c[n][2 * half + 1] * factor[half]));
  }
  cuda::warp_barrier();
  constexpr int kChunks = N / 8;
  TFM_UNROLL for (int i = 0; i < kChunks / 2; ++i) {
    const int x = i * 32 + at.lane, r = row + x / kChunks, chunk = first / 8 + x % kChunks;
    if (r < end && chunk * 8 < size)
      cuda::store(to + r * stride + chunk * 8,
                  cuda::load<cuda::Pack<T>>(tile + place<D>(r, chunk)));
  }
}

// Beside a tile of columns, where something is added to or hides scores.
struct Beside {
  const float* bias;  // [s - t - first_distance]
  int first_distance;
  const std::int32_t* segments;  // of the columns
};

// From products to scores, -inf where hidden. Rows are queries, or keys; `row` and `column` are
// those of this lane's element 0, and row_segment belongs to its two rows. cut: some pair of the
// tile may be hidden by its position.
template <bool KeysAreRows, bool Added, int N>
__device__ void to_scores(float (&c)[N][4], float scale, const Mask& mask, int row, int column,
                          bool cut, const std::int32_t (&row_segment)[2], const Beside& beside,
                          bool biased) {
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

// Bit 4 n + e: element e of the accumulator's n-th 16 x 8 part is kept. Two lanes share the random
// block of four columns: each draws it for one of their two rows.
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
