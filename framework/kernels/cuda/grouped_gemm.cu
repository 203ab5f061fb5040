// Products of the rows of each expert. Offsets stay on the device: blocks find their expert by
// them, and a grid has as many blocks as any offsets need.
#include "kernels/cuda/packs.h"
#include "kernels/experts.h"

namespace tfm::kernels {
namespace {

// A block multiplies a tile of kTile rows and columns, kDepth terms at a time; a thread has 4 x 4
// sums.
constexpr int kTile = 64, kDepth = 16, kOwn = 4, kPitch = kTile + 4, kSide = kTile / kOwn;
static_assert(kSide * kSide == kThreads);

// Rows [begin, end) of an expert, which is `experts` behind the last one's rows, and larger where
// there are none left.
struct Tile {
  std::int64_t expert, begin, end;
  __device__ Tile(const std::int32_t* offsets, std::int64_t experts, std::int64_t rows,
                  std::int64_t tile) {
    for (expert = 0; expert <= experts; ++expert) {
      const std::int64_t first = offsets[expert],
                         last = expert < experts ? offsets[expert + 1] : rows,
                         tiles = (last - first + kTile - 1) / kTile;
      begin = first + tile * kTile;
      end = begin + kTile < last ? begin + kTile : last;
      if (tile < tiles) return;
      tile -= tiles;
    }
  }
};
unsigned most_tiles(std::int64_t rows, std::int64_t experts) {
  return static_cast<unsigned>(ceil_div(rows, kTile) + experts + 1);
}

template <class W>
constexpr std::size_t kShared = 2 * kDepth* kPitch * sizeof(W);

// sums += op(A)^T op(B) over k in [0, terms): a(k, i) and b(k, j) are elements of the tile, zeros
// outside.
template <class W, class A, class B>
__device__ void multiply_tile(W (&sums)[kOwn][kOwn], std::int64_t terms, A a, B b) {
  W* const left = cuda::shared_memory<W>();
  W* const right = left + kDepth * kPitch;
  const int row = static_cast<int>(threadIdx.x) / kSide * kOwn,
            column = static_cast<int>(threadIdx.x) % kSide * kOwn;
  for (std::int64_t first = 0; first < terms; first += kDepth) {
    for (int i = static_cast<int>(threadIdx.x); i < kDepth * kTile; i += kThreads) {
      const int k = i / kTile, at = i % kTile;
      left[k * kPitch + at] = first + k < terms ? a(first + k, at) : W{0};
      right[k * kPitch + at] = first + k < terms ? b(first + k, at) : W{0};
    }
    cuda::block_barrier();
    for (int k = 0; k < kDepth; ++k) {
      TFM_UNROLL
      for (int i = 0; i < kOwn; ++i) {
        TFM_UNROLL
        for (int j = 0; j < kOwn; ++j)
          sums[i][j] += left[k * kPitch + row + i] * right[k * kPitch + column + j];
      }
    }
    cuda::block_barrier();
  }
}
// Calls f(row, column, sum) for each sum of this thread.
template <class W, class F>
__device__ void each_sum(const W (&sums)[kOwn][kOwn], F f) {
  const int row = static_cast<int>(threadIdx.x) / kSide * kOwn,
            column = static_cast<int>(threadIdx.x) % kSide * kOwn;
  for (int i = 0; i < kOwn; ++i)
    for (int j = 0; j < kOwn; ++j) f(row + i, column + j, sums[i][j]);
}

template <class T>
__global__ void __launch_bounds__(kThreads) grouped_gemm_kernel(GroupedGemmArgs<T> a) {
  using W = Accum<T>;
  const Tile tile(a.offsets, a.experts, a.rows, blockIdx.y);
  if (tile.expert > a.experts) return;
  const bool live = tile.expert < a.experts;
  const std::int64_t first = std::int64_t{blockIdx.x} * kTile;
  const T* const b = a.b + tile.expert * a.n * a.k;
  W sums[kOwn][kOwn] = {};
  multiply_tile(
      sums, live ? a.k : 0,
      [&](std::int64_t k, int i) {
        return tile.begin + i < tile.end ? cuda::widen<T>(a.a[(tile.begin + i) * a.k + k]) : W{0};
      },
      [&](std::int64_t k, int j) {
        if (first + j >= a.n) return W{0};
        return cuda::widen<T>(a.transpose_b ? b[(first + j) * a.k + k] : b[k * a.n + first + j]);
      });
  each_sum(sums, [&](int i, int j, W sum) {
    if (tile.begin + i >= tile.end || first + j >= a.n) return;
    if (live && a.bias) sum += cuda::widen<T>(a.bias[tile.expert * a.n + first + j]);
    a.c[(tile.begin + i) * a.n + first + j] = cuda::narrow<T>(sum);
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads) grouped_gradients_kernel(GroupedGradientsArgs<T> a) {
  using W = Accum<T>;
  const std::int64_t expert = blockIdx.z, row = std::int64_t{blockIdx.y} * kTile,
                     column = std::int64_t{blockIdx.x} * kTile, first = a.offsets[expert];
  W sums[kOwn][kOwn] = {};
  multiply_tile(
      sums, a.offsets[expert + 1] - first,
      [&](std::int64_t k, int i) {
        return row + i < a.out ? cuda::widen<T>(a.dy[(first + k) * a.out + row + i]) : W{0};
      },
      [&](std::int64_t k, int j) {
        return column + j < a.in ? cuda::widen<T>(a.x[(first + k) * a.in + column + j]) : W{0};
      });
  W* const dw = a.dw + expert * a.out * a.in;
  each_sum(sums, [&](int i, int j, W sum) {
    if (row + i >= a.out || column + j >= a.in) return;
    W& to = dw[(row + i) * a.in + column + j];
    to = a.accumulate_dw ? to + sum : sum;
  });
}

// A thread for each column of an expert.
template <class T>
__global__ void __launch_bounds__(kThreads) grouped_sums_kernel(GroupedGradientsArgs<T> a) {
  const std::int64_t expert = blockIdx.y, c = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (c >= a.out) return;
  Accum<T> sum = 0;
  for (std::int64_t r = a.offsets[expert]; r < a.offsets[expert + 1]; ++r)
    sum += cuda::widen<T>(a.dy[r * a.out + c]);
  Accum<T>& to = a.db[expert * a.out + c];
  to = a.accumulate_db ? to + sum : sum;
}

unsigned tiles(std::int64_t n, int each = kTile) {
  return static_cast<unsigned>(ceil_div(n, each));
}

}  // namespace

template <class T>
void grouped_gemm(cuda::Stream& stream, const GroupedGemmArgs<T>& a) {
  cuda::launch(stream, grouped_gemm_kernel<T>, dim3(tiles(a.n), most_tiles(a.rows, a.experts)),
               kThreads, kShared<Accum<T>>, a);
}
template <class T>
void grouped_gradients(cuda::Stream& stream, const GroupedGradientsArgs<T>& a) {
  const auto experts = static_cast<unsigned>(a.experts);
  cuda::launch(stream, grouped_gradients_kernel<T>, dim3(tiles(a.in), tiles(a.out), experts),
               kThreads, kShared<Accum<T>>, a);
  if (a.db)
    cuda::launch(stream, grouped_sums_kernel<T>, dim3(tiles(a.out, kThreads), experts), kThreads, 0,
                 a);
}

#define TFM_INSTANTIATE(T)                                              \
  template void grouped_gemm(cuda::Stream&, const GroupedGemmArgs<T>&); \
  template void grouped_gradients(cuda::Stream&, const GroupedGradientsArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
