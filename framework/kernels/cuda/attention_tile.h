#pragma once
// Tiles of 16-bit elements in shared memory. A tile has D elements per row. If D is a multiple of
// 64, it is stored as panels of 64 columns, one after the other. Chunks of eight elements are
// permuted within a row: in the order that warpgroup instructions expect, and so that the eight
// rows read by one ldmatrix lie in different banks.
#include "kernels/cuda/attention_parts.h"
#include "kernels/cuda/tensor_cores.h"

namespace tfm::kernels::gpu {

template <int D>
constexpr int kPitch = D % 64 == 0 ? 64 : D;  // elements from row to row

template <int D, int Rows>
__device__ int place(int row, int chunk) {
  constexpr int kChunks = kPitch<D> / 8;
  const int mixed = chunk % kChunks ^ (D % 64 == 0 ? row % 8 : row / 2 % 4);
  return chunk / kChunks * Rows * kPitch<D> + row * kPitch<D> + mixed * 8;
}

// The place `chunks` chunks after a place in chunk 0 or 1 of the same row; `chunks` is even.
template <int D, int Rows>
__device__ std::uint32_t further(std::uint32_t place, int chunks) {
  constexpr int kMixed = D % 64 == 0 ? 8 : 4, kNext = D % 64 == 0 ? Rows * 64 : 32;
  return (place ^ chunks % kMixed * 8) + chunks / kMixed * kNext;
}

// Place of the row whose address this lane passes to ldmatrix, in the first 16 x 16 elements of a
// tile whose quarters are read column by column or row by row.
template <int D>
struct LanePlace {
  std::uint32_t by_column = place<D, 16>(threadIdx.x % 16, threadIdx.x / 16 % 2),
                by_row =
                    place<D, 16>(threadIdx.x / 16 % 2 * 8 + threadIdx.x % 8, threadIdx.x / 8 % 2);
  // Hidden from the compiler so that they are computed once, not in each tile.
  __device__ LanePlace() { cuda::hide(by_column), cuda::hide(by_row); }
};

// Position of this lane in a 16 x 8 accumulator: its element e is at row g + e / 2 * 8, column
// 2 t + e % 2.
struct LaneOf {
  int lane = threadIdx.x % 32;
  int g = lane / 4, t = lane % 4;
};

// Calls f(n, e) for each element e that a lane holds of each of N adjacent accumulators.
template <int N, class F>
__device__ void each_element(F&& f) {
  TFM_UNROLL for (int n = 0; n < N; ++n) { TFM_UNROLL for (int e = 0; e < 4; ++e) f(n, e); }
}

// Copies consecutive tiles of Rows rows of `size` elements, starting at row `first`. Rows from
// `end` on and elements from `size` on are set to zero.
template <class T, int D, int Rows, int Threads>
class Loader {
 public:
  Loader() = default;
  __device__ Loader(const T* from, std::int64_t stride, int first, int end, int size)
      : step_(kDown * stride) {
    const int row = threadIdx.x / kAcross, chunk = threadIdx.x % kAcross;
    from_ = from + (first + row) * stride + chunk * 8;
    rows_ = end - first - row, elements_ = size - chunk * 8, place_ = place<D, Rows>(row, chunk);
  }
  // Starts to copy the next tile.
  __device__ void start(T* tile) {
    TFM_UNROLL for (int row = 0; row < Rows; row += kDown, from_ += step_) {
      TFM_UNROLL for (int element = 0; element < D; element += kAcross * 8)
          cuda::copy_async<16>(tile + (place_ ^ row % 8 * 8) + row * kPitch<D> + element,
                               from_ + element, row < rows_ && element < elements_ ? 16 : 0);
    }
    rows_ -= Rows;
  }
  // Leaves out so many rows, a multiple of Rows.
  __device__ void skip(int rows) {
    from_ += rows / kDown * step_;
    rows_ -= rows;
  }

 private:
  // Arrangement of the threads: kAcross, a power of 2, side by side in a row, and kDown rows.
  static constexpr int kAcross = D / 8 & -(D / 8), kDown = Threads / kAcross;
  static_assert(Rows % kDown == 0 && (D % 64 == 0 || kDown % 8 == 0));
  // All of this thread:
  const T* from_;
  std::int64_t step_;
  int rows_, elements_, place_;  // rows and elements before the ends; place in the tile
};

// Stores c times factor[e / 2] as rows [row, row + 16) and columns [first, first + N) of `to`, by
// way of the same elements of `tile` (Rows rows), which only this warp still uses. Rows from
// `end` on and columns from `size` on are not stored.
template <class T, int D, int N, int Rows = kTensorRows>
__device__ void store_rows(T* tile, const float (&c)[N / 8][4], const float (&factor)[2], T* to,
                           std::int64_t stride, int row, int end, int first, int size) {
  const LaneOf at;
  TFM_UNROLL for (int n = 0; n < N / 8; ++n) {
    TFM_UNROLL for (int half = 0; half < 2; ++half) cuda::store(
        tile + place<D, Rows>(row + at.g + half * 8, first / 8 + n) + 2 * at.t,
        cuda::pack2<T>(c[n][2 * half] * factor[half], c[n][2 * half + 1] * factor[half]));
  }
  cuda::warp_barrier();
  constexpr int kChunks = N / 8;
  TFM_UNROLL for (int i = 0; i < kChunks / 2; ++i) {
    const int x = i * 32 + at.lane, r = row + x / kChunks, chunk = first / 8 + x % kChunks;
    if (r < end && chunk * 8 < size)
      cuda::store(to + r * stride + chunk * 8,
                  cuda::load<cuda::Pack<T>>(tile + place<D, Rows>(r, chunk)));
  }
}

}  // namespace tfm::kernels::gpu
