#pragma once
// y (cols) (+)= the sum of `count` partial rows, in an order that no run changes: the second pass
// of sums over rows.
#include "kernels/cuda/packs.h"

namespace tfm::kernels {

// A block has a warp for every eighth partial row and a lane for each of 32 columns.
template <class T>
__global__ void __launch_bounds__(kThreads)
    column_fold_kernel(const T* partial, std::int64_t count, std::int64_t step, std::int64_t cols,
                       T* y, bool accumulate) {
  constexpr int kGroups = kThreads / kWarp;
  T* shared = cuda::shared_memory<T>();  // (groups, 32)
  const unsigned lane = threadIdx.x % kWarp, group = threadIdx.x / kWarp;
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * kWarp + lane;
  T sum = 0;
  if (c < cols)
    for (std::int64_t b = group; b < count; b += kGroups) sum += partial[b * step + c];
  shared[threadIdx.x] = sum;
  cuda::block_barrier();
  if (group > 0 || c >= cols) return;
  for (int g = 1; g < kGroups; ++g) sum += shared[g * kWarp + lane];
  y[c] = accumulate ? y[c] + sum : sum;
}

template <class T>
void column_fold(cuda::Stream& stream, const T* partial, std::int64_t count, std::int64_t step,
                 std::int64_t cols, T* y, bool accumulate) {
  cuda::launch(stream, column_fold_kernel<T>, static_cast<unsigned>(ceil_div(cols, kWarp)),
               kThreads, kThreads * sizeof(T), partial, count, step, cols, y, accumulate);
}

}  // namespace tfm::kernels
