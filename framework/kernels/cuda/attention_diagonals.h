#pragma once
// The gradient of attention's bias: sums over the diagonals of the gradient of the scores.
#include "kernels/cuda/attention_parts.h"

namespace tfm::kernels::gpu {

// Sums a tile's gradients along its diagonals, s - t = constant. The Rows x Keys tiles of one block
// of queries are processed in order of the keys. Diagonal i of the block's tile j is element
// j * Keys + i of `diagonals`, in the block's row from its first key on. A tile completes its first
// Keys diagonals and passes the others to the next tile in `carry` (2, Rows). The order of
// summation is fixed.
template <int Rows, int Keys, class W>
__device__ void add_diagonals(const W* tile, int pitch, W* carry, W* diagonals, int j, int thread,
                              int threads) {
  const W* from = carry + j % 2 * Rows;
  W* to = carry + (j + 1) % 2 * Rows;
  for (int i = thread; i < Rows + Keys - 1; i += threads) {
    W sum = j > 0 && i < Rows - 1 ? from[i] : W{0};
    for (int r = std::max(0, Rows - 1 - i); r < Rows && i - (Rows - 1) + r < Keys; ++r)
      sum += tile[r * pitch + i - (Rows - 1) + r];
    if (i < Keys)
      diagonals[j * Keys + i] = sum;
    else
      to[i - Keys] = sum;
  }
}
// Writes the rest of the row. Called after the last tile and a barrier.
template <int Rows, int Keys, class W>
__device__ void finish_diagonals(const W* carry, W* diagonals, std::int64_t width,
                                 const Tiles& tiles, int thread, int threads) {
  for (std::int64_t i = thread; i < tiles.begin; i += threads) diagonals[i] = 0;
  const int done = tiles.begin + tiles.count * Keys;
  for (std::int64_t i = done + thread; i < width; i += threads) {
    const std::int64_t at = i - done;
    diagonals[i] = tiles.count > 0 && at < Rows - 1 ? carry[tiles.count % 2 * Rows + at] : W{0};
  }
}

// The row of `diagonals` of a tile of queries; null if no gradient of the bias is wanted.
template <class T>
__device__ Accum<T>* diagonals_of_block(const BackwardScratch<T>& scratch,
                                        unsigned tile = blockIdx.x) {
  const std::int64_t block = (std::int64_t{blockIdx.z} * gridDim.y + blockIdx.y) * gridDim.x + tile;
  return scratch.diagonals ? scratch.diagonals + block * scratch.width : nullptr;
}

}  // namespace tfm::kernels::gpu
