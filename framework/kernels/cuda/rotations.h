#pragma once
// Angles of rotary positions (Su et al. 2021).
#include "kernels/cuda/packs.h"

namespace tfm::kernels {

// Positions of rows 0, 1, ...: (first_row + row) % length + offset.
struct RowPositions {
  std::int64_t rows, first_row, length, offset;
};

// table (rows, 2, half): cosines and sines of position * frequency[i], i < half, times `factor`.
template <class W>
__global__ void __launch_bounds__(kThreads)
    rotations_kernel(RowPositions p, const double* frequency, double factor, std::int64_t half,
                     W* table) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= p.rows * half) return;
  const std::int64_t r = i / half;
  const double position = static_cast<double>((p.first_row + r) % p.length + p.offset),
               angle = position * frequency[i % half];
  table[r * 2 * half + i % half] = static_cast<W>(factor * ::cos(angle));
  table[(r * 2 + 1) * half + i % half] = static_cast<W>(factor * ::sin(angle));
}

template <class W>
void rotations(cuda::Stream& stream, const RowPositions& p, const double* frequency, double factor,
               std::int64_t half, W* table) {
  if (p.rows * half > 0)
    cuda::launch(stream, rotations_kernel<W>,
                 static_cast<unsigned>(ceil_div(p.rows * half, kThreads)), kThreads, 0, p,
                 frequency, factor, half, table);
}

}  // namespace tfm::kernels
