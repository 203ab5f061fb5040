#pragma once
// Products of tiles on tensor cores.
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

}  // namespace tfm::kernels::gpu
