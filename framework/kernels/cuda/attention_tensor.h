#pragma once
// Tiles of 16-bit elements in shared memory and their products on tensor cores. A tile has D elements a row; chunks of eight
// change places within a row so that the eight rows which one ldmatrix reads lie in different banks.
#include "kernels/cuda/attention_parts.h"

namespace tfm::kernels::gpu {

template <int D>
__device__ int place(int row, int chunk) {
  return row * D + (chunk ^ (D % 64 == 0 ? row % 8 : row / 2 % 4)) * 8;
}

// Of this lane in a 16 x 8 accumulator: element e is row g + e / 2 * 8, column 2 t + e % 2.
struct LaneOf {
  int lane = threadIdx.x % 32;
  int g = lane / 4, t = lane % 4;
};

// f(n, e) for each element that a lane holds of N accumulators side by side.
template <int N, class F>
__device__ void each_element(F&& f) {
  TFM_UNROLL for (int n = 0; n < N; ++n) {
    TFM_UNROLL for (int e = 0; e < 4; ++e)
      f(n, e);
  }
}

// Starts to copy rows [first, first + Rows) of `size` elements each; zeros from row `end` and element `size` on.
template <int D, int Rows, int Threads, class T>
__device__ void load_tile(T* tile, const T* from, std::int64_t stride, int first, int end, int size) {
  constexpr int kChunks = D / 8;
  static_assert(Rows * kChunks % Threads == 0);
  TFM_UNROLL for (int i = 0; i < Rows * kChunks / Threads; ++i) {
    const int x = i * Threads + threadIdx.x, row = x / kChunks, chunk = x % kChunks;
    const bool inside = first + row < end && chunk * 8 < size;
    cuda::copy_async<16>(tile + place<D>(row, chunk), from + (inside ? (first + row) * stride + chunk * 8 : 0), inside ? 16 : 0);
  }
}

// Starts to copy n words; zeros from `end` on and before `begin`.
template <class W>
__device__ void load_words(W* to, const W* from, int first, int n, int begin, int end, int thread) {
  if (thread < 0 || thread >= n) return;
  const int i = first + thread;
  const bool inside = i >= begin && i < end;
  cuda::copy_async<4>(to + thread, from + (inside ? i : begin), inside ? 4 : 0);
}

// c (16, N) += a b^T: rows [row, row + 16) of tile a against N rows of tile b.
template <class T, int D, int N>
__device__ void multiply_rows(float (&c)[N / 8][4], const T* a, int row, const T* b) {
  const int l = LaneOf{}.lane;
  TFM_UNROLL for (int k = 0; k < D / 8; k += 2) {
    std::uint32_t fa[4];
    cuda::ldmatrix(fa, a + place<D>(row + l % 16, k + l / 16));
    TFM_UNROLL for (int n = 0; n < N / 8; n += 2) {
      std::uint32_t fb[4];
      cuda::ldmatrix(fb, b + place<D>(n * 8 + l / 16 * 8 + l % 8, k + l / 8 % 2));
      cuda::mma<T>(c[n], fa, fb[0], fb[1]);
      cuda::mma<T>(c[n + 1], fa, fb[2], fb[3]);
    }
  }
}

// c (16, N) += a b: an accumulator (16, K) against K rows of tile b, columns [first, first + N).
template <class T, int D, int K, int N>
__device__ void multiply_columns(float (&c)[N / 8][4], const float (&a)[K / 8][4], const T* b, int first) {
  const int l = LaneOf{}.lane;
  TFM_UNROLL for (int k = 0; k < K / 8; k += 2) {
    const std::uint32_t fa[4] = {cuda::pack2<T>(a[k][0], a[k][1]), cuda::pack2<T>(a[k][2], a[k][3]),
                                 cuda::pack2<T>(a[k + 1][0], a[k + 1][1]), cuda::pack2<T>(a[k + 1][2], a[k + 1][3])};
    TFM_UNROLL for (int n = 0; n < N / 8; n += 2) {
      std::uint32_t fb[4];
      cuda::ldmatrix_transposed(fb, b + place<D>(k * 8 + l / 8 % 2 * 8 + l % 8, first / 8 + n + l / 16));
      cuda::mma<T>(c[n], fa, fb[0], fb[1]);
      cuda::mma<T>(c[n + 1], fa, fb[2], fb[3]);
    }
  }
}

// Rows [row, row + 16) and columns [first, first + N) of a tile that only this warp still uses: c times factor[e / 2], by way of
// shared memory, to `to`, whose first row is the tile's.
template <class T, int D, int N>
__device__ void store_rows(T* tile, const float (&c)[N / 8][4], const float (&factor)[2], T* to, std::int64_t stride, int row,
                           int end, int first, int size) {
  const LaneOf at;
  TFM_UNROLL for (int n = 0; n < N / 8; ++n) {
    TFM_UNROLL for (int half = 0; half < 2; ++half)
      cuda::store(tile + place<D>(row + at.g + half * 8, first / 8 + n) + 2 * at.t,
                  cuda::pack2<T>(c[n][2 * half] * factor[half], c[n][2 * half + 1] * factor[half]));
  }
  cuda::warp_barrier();
  constexpr int kChunks = N / 8;
  TFM_UNROLL for (int i = 0; i < kChunks / 2; ++i) {
    const int x = i * 32 + at.lane, r = row + x / kChunks, chunk = first / 8 + x % kChunks;
    if (r < end && chunk * 8 < size)
      cuda::store(to + r * stride + chunk * 8, cuda::load<cuda::Pack<T>>(tile + place<D>(r, chunk)));
  }
}

// Beside a tile of columns, where something is added to or hides scores.
struct Beside {
  const float* bias;  // [s - t - first_distance]
  int first_distance;
  const std::int32_t* segments;  // of the columns
};

// From products to scores, -inf where hidden. Rows are queries, or keys; `row` and `column` are those of this lane's element 0,
// and row_segment belongs to its two rows. cut: some pair of the tile may be hidden by its position.
template <bool KeysAreRows, bool Added, int N>
__device__ void to_scores(float (&c)[N][4], float scale, const Mask& mask, int row, int column, bool cut,
                          const std::int32_t (&row_segment)[2], const Beside& beside, bool biased) {
  const auto each = [&](auto&& f) {
    each_element<N>([&](int n, int e) {
      const int r = row + e / 2 * 8, i = n * 8 + e % 2;
      f(c[n][e], KeysAreRows ? column + i : r, KeysAreRows ? r : column + i, row_segment[e / 2], i + 2 * LaneOf{}.t);
    });
  };
  each([&](float& x, int t, int s, std::int32_t, int) {
    x *= scale;
    if (Added && biased) x += kLog2E * beside.bias[s - t - beside.first_distance];
  });
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  if (cut) each([&](float& x, int t, int s, std::int32_t, int) { x = mask.sees(t, s) ? x : kHidden; });
  if (Added && mask.padding)
    each([&](float& x, int, int, std::int32_t own, int i) {
      const std::int32_t other = KeysAreRows && !mask.documents ? 0 : beside.segments[i];
      x = (KeysAreRows ? mask.same(other, own) : mask.same(own, other)) ? x : kHidden;
    });
}

// Bit 4 n + e: element e of the accumulator's n-th 16 x 8 part is kept. Two lanes share the random block of four columns: each
// draws it for one of their two rows.
template <int N>
__device__ std::uint32_t kept_in_rows(const Dropped& dropped, int row, int column) {
  const LaneOf at;
  std::uint32_t own = 0;
  TFM_UNROLL for (int n = 0; n < N; ++n)
    own |= dropped.four(row + at.t % 2 * 8, column - 2 * at.t + n * 8 + at.t / 2 * 4) << 4 * n;
  const std::uint32_t other = cuda::shuffle_xor(own, 1);
  const std::uint32_t low = at.t % 2 ? other : own, high = at.t % 2 ? own : other;
  const int shift = at.t % 2 * 2;
  return (low >> shift & 0x33333333u) | (high >> shift & 0x33333333u) << 2;
}
// The same where rows are keys: four lanes share the blocks of their rows, and each draws one element's.
template <int N>
__device__ std::uint32_t kept_in_columns(const Dropped& dropped, int row, int column) {
  const LaneOf at;
  const int e = at.g % 4;
  std::uint32_t kept = 0;
  TFM_UNROLL for (int n = 0; n < N; n += 2) {
    std::uint32_t all = 0;
    TFM_UNROLL for (int m = 0; m < 2; ++m)
      all |= dropped.four(column + (n + m) * 8 + e % 2, row - at.g % 4 + e / 2 * 8) << (16 * m + 4 * e);
    all |= cuda::shuffle_xor(all, 4);
    all |= cuda::shuffle_xor(all, 8);
    all >>= at.g % 4;
    TFM_UNROLL for (int i = 0; i < 8; ++i)
      kept |= (all >> 4 * i & 1) << (4 * n + i);
  }
  return kept;
}

}  // namespace tfm::kernels::gpu
