#pragma once
// Second pass of sums over rows: y (cols) (+)= the sum of `count` partial rows, in a fixed order.
#include <algorithm>
#include <utility>

#include "kernels/cuda/packs.h"

namespace tfm::kernels {

template <class T>
struct ColumnFold {
  const T* partial;  // (count, step), of which the first `cols` columns are used
  T* y;
  bool accumulate;
};
// One or two sums of the same sizes. A y may be null: that sum is left out.
template <class T>
struct ColumnFolds {
  ColumnFold<T> of[2];
  std::int64_t count, step, cols;
};

// Rows that a thread loads before it adds them, and most threads of a block.
inline constexpr int kFoldAhead = 8, kFoldThreads = 1024;

// Each lane of a block has one of 32 columns, and its warps take the partial rows in turn.
template <class T>
__global__ void __launch_bounds__(kFoldThreads) column_fold_kernel(ColumnFolds<T> a) {
  T* shared = cuda::shared_memory<T>();  // (groups, 32)
  const ColumnFold<T> fold = a.of[blockIdx.y];
  const unsigned lane = threadIdx.x % kWarp, group = threadIdx.x / kWarp,
                 groups = blockDim.x / kWarp;
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * kWarp + lane;
  T sum = 0;
  if (c < a.cols)
    for (std::int64_t first = group; first < a.count; first += groups * kFoldAhead) {
      T some[kFoldAhead];
      TFM_UNROLL
      for (int i = 0; i < kFoldAhead; ++i) {
        const std::int64_t row = first + i * groups;
        some[i] = row < a.count ? fold.partial[row * a.step + c] : T{0};
      }
      TFM_UNROLL
      for (int i = 0; i < kFoldAhead; ++i) sum += some[i];
    }
  shared[threadIdx.x] = sum;
  cuda::block_barrier();
  if (group > 0 || c >= a.cols) return;
  for (unsigned g = 1; g < groups; ++g) sum += shared[g * kWarp + lane];
  fold.y[c] = fold.accumulate ? fold.y[c] + sum : sum;
}

template <class T>
void column_fold(cuda::Stream& stream, ColumnFolds<T> a) {
  if (!a.of[0].y) std::swap(a.of[0], a.of[1]);
  if (!a.of[0].y) return;
  const auto groups = static_cast<int>(
      std::clamp<std::int64_t>(ceil_div(a.count, kFoldAhead), 2, kFoldThreads / kWarp));
  cuda::launch(stream, column_fold_kernel<T>,
               dim3(static_cast<unsigned>(ceil_div(a.cols, kWarp)), a.of[1].y ? 2 : 1),
               static_cast<unsigned>(groups * kWarp), groups * kWarp * sizeof(T), a);
}

}  // namespace tfm::kernels
