#pragma once
// A team of chunks.h that is a thread block. Its matrices are in global memory, and tiles of the
// factors of a product in shared memory.
#include "kernels/chunks.h"
#include "kernels/cuda/reductions.h"

namespace tfm::kernels {
namespace {

// Threads of a block, of which each has 4 x 4 elements of a tile of a product.
template <class Wide>
struct Block {
  static constexpr int kTile = 64, kTerms = 16, kPitch = kTile + 4, kOwn = 4;
  static constexpr std::size_t kShared = 2 * kTerms * kPitch * sizeof(Wide);

  template <class F>
  __device__ void each(std::int64_t rows, std::int64_t cols, F&& f) const {
    for (std::int64_t e = threadIdx.x; e < rows * cols; e += kThreads) f(e / cols, e % cols);
    cuda::block_barrier();
  }
  template <class F>
  __device__ void below(std::int64_t n, F&& f) const {
    each(n, n, [&](std::int64_t i, std::int64_t j) {
      if (j < i) f(i, j);
    });
  }
  template <class F>
  __device__ void down(std::int64_t n, F&& f) const {
    for (std::int64_t j = threadIdx.x; j < n; j += kThreads)
      for (std::int64_t i = j + 1; i < n; ++i) f(i, j);
  }
  template <class Term, class F>
  __device__ void sums(std::int64_t rows, std::int64_t cols, Term&& term, F&& f) const {
    sums_of(
        rows, [&](std::int64_t) { return cols; }, term, f);
  }
  template <class Term, class F>
  __device__ void sums_below(std::int64_t n, Term&& term, F&& f) const {
    sums_of(
        n, [](std::int64_t i) { return i; }, term, f);
  }
  static constexpr std::int64_t triangle_rows() { return kTile; }
  template <class F>
  __device__ void once(F&& f) const {
    if (threadIdx.x == 0) f();
    cuda::block_barrier();
  }
  __device__ void product(std::int64_t m, std::int64_t n, std::int64_t k, Wide alpha, const Wide* a,
                          std::int64_t row, std::int64_t term, Matrix<Wide> b, Wide beta,
                          Matrix<Wide> c) const {
    for (std::int64_t i = 0; i < m; i += kTile)
      for (std::int64_t j = 0; j < n; j += kTile)
        tile({m - i, n - j, k}, alpha, a + i * row, row, term, {&b(0, j), b.pitch}, beta,
             {&c(i, j), c.pitch});
  }
  __device__ void solve(std::int64_t n, std::int64_t cols, bool transposed, Matrix<Wide> a,
                        Matrix<Wide> x) const {
    for (std::int64_t j = threadIdx.x; j < cols; j += kThreads)
      for (std::int64_t s = 0; s < n; ++s) {
        const std::int64_t i = transposed ? n - 1 - s : s;
        Wide sum = x(i, j);
        for (std::int64_t o = transposed ? i + 1 : 0; o < (transposed ? n : i); ++o)
          sum -= (transposed ? a(o, i) : a(i, o)) * x(o, j);
        x(i, j) = sum;
      }
    cuda::block_barrier();
  }

 private:
  template <class Cols, class Term, class F>
  __device__ void sums_of(std::int64_t rows, Cols&& cols, Term&& term, F&& f) const {
    for (std::int64_t first = 0; first < rows; first += kThreads / kWarp) {
      const std::int64_t i = first + threadIdx.x / kWarp;
      Wide sum = 0;
      for (std::int64_t j = threadIdx.x % kWarp; i < rows && j < cols(i); j += kWarp)
        sum += term(i, j);
      sum = over_warp(sum, Sum{});
      if (i < rows && threadIdx.x % kWarp == 0) f(i, sum);
    }
    cuda::block_barrier();
  }

  struct Sizes {
    std::int64_t m, n, k;
  };
  __device__ void tile(Sizes s, Wide alpha, const Wide* a, std::int64_t row, std::int64_t term,
                       Matrix<Wide> b, Wide beta, Matrix<Wide> c) const {
    Wide* const left = cuda::shared_memory<Wide>();  // (terms, rows)
    Wide* const right = left + kTerms * kPitch;      // (terms, columns)
    const int thread = static_cast<int>(threadIdx.x), down = thread / 16 * kOwn,
              across = thread % 16 * kOwn;
    Wide sum[kOwn][kOwn] = {};
    for (std::int64_t first = 0; first < s.k; first += kTerms) {
      for (int e = thread; e < kTile * kTerms; e += kThreads) {
        const int i = term == 1 ? e / kTerms : e % kTile, t = term == 1 ? e % kTerms : e / kTile;
        left[t * kPitch + i] =
            i < s.m && first + t < s.k ? a[i * row + (first + t) * term] : Wide(0);
        const int j = e % kTile, u = e / kTile;
        right[u * kPitch + j] = j < s.n && first + u < s.k ? b(first + u, j) : Wide(0);
      }
      cuda::block_barrier();
      TFM_UNROLL
      for (int t = 0; t < kTerms; ++t) {
        TFM_UNROLL
        for (int i = 0; i < kOwn; ++i) {
          TFM_UNROLL
          for (int j = 0; j < kOwn; ++j)
            sum[i][j] += left[t * kPitch + down + i] * right[t * kPitch + across + j];
        }
      }
      cuda::block_barrier();
    }
    TFM_UNROLL
    for (int i = 0; i < kOwn; ++i) {
      TFM_UNROLL
      for (int j = 0; j < kOwn; ++j) {
        if (down + i >= s.m || across + j >= s.n) continue;
        Wide& to = c(down + i, across + j);
        to = beta == 0 ? alpha * sum[i][j] : alpha * sum[i][j] + beta * to;
      }
    }
    cuda::block_barrier();
  }
};

}  // namespace
}  // namespace tfm::kernels
