#pragma once
// Products and triangular systems of small matrices in a cache, in the calling thread. Rows and
// columns are computed in whole tiles: matrices have memory for rows up to a multiple of kTileRows
// and columns up to one of tile_columns(), whose content beyond their sizes is arbitrary. The order
// of a sum depends on its number of terms only.
#include "kernels/cpu/simd.h"

namespace tfm::kernels::small {

inline constexpr int kTileRows = kVectorBytes == 64 ? 8 : 4;
template <class W>
constexpr std::int64_t tile_columns() {
  return 2 * kLanes<W>;
}

// Element (i, k) of a left factor is at[i * row + k * term].
template <class W>
struct Left {
  const W* at;
  std::int64_t row, term;
};

// c (m, n) = alpha a (m, k) b (k, n) + beta c, with rows of b and c `ldb` and `ldc` elements apart.
template <class W>
void product(std::int64_t m, std::int64_t n, std::int64_t k, W alpha, Left<W> a, const W* b,
             std::int64_t ldb, W beta, W* c, std::int64_t ldc) {
  using V = Vec<W>;
  for (std::int64_t i = 0; i < m; i += kTileRows)
    for (std::int64_t j = 0; j < n; j += tile_columns<W>()) {
      V sum[kTileRows][2] = {};
      const W *left = a.at + i * a.row, *right = b + j;
      for (std::int64_t t = 0; t < k; ++t, left += a.term, right += ldb) {
        const V low = load(right, Full{}), high = load(right + kLanes<W>, Full{});
#pragma GCC unroll 8
        for (int r = 0; r < kTileRows; ++r) {
          const W factor = left[r * a.row];
          sum[r][0] += low * factor;
          sum[r][1] += high * factor;
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kTileRows; ++r) {
        W* const to = c + (i + r) * ldc + j;
        for (int h = 0; h < 2; ++h) {
          W* const at = to + h * kLanes<W>;
          store(at, beta == 0 ? sum[r][h] * alpha : sum[r][h] * alpha + load(at, Full{}) * beta,
                Full{});
        }
      }
    }
}

// Solves (I + A) y = x, or (I + A^T) y = x, in place, for `Vectors` vectors of columns. A (n, n) is
// strictly lower triangular. Two rows are solved together: one alone would wait for its sums.
template <int Vectors, class W>
void solve_columns(std::int64_t n, bool transposed, const W* a, std::int64_t lda, W* x,
                   std::int64_t ldx) {
  const auto row = [&](std::int64_t s) { return transposed ? n - 1 - s : s; };
  const auto factor = [&](std::int64_t i, std::int64_t j) -> const W& {
    return transposed ? a[j * lda + i] : a[i * lda + j];
  };
  const std::int64_t step = transposed ? lda : 1;
  const auto solve_rows = [&]<int Rows>(std::int64_t s) {
    const std::int64_t i = row(s), next = row(s + Rows - 1), begin = transposed ? i + 1 : 0,
                       end = transposed ? n : i;
    Vec<W> sum[Rows][Vectors];
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      sum[0][v] = load(x + i * ldx + v * kLanes<W>, Full{});
      if (Rows > 1) sum[Rows - 1][v] = load(x + next * ldx + v * kLanes<W>, Full{});
    }
    const W *first = &factor(i, begin), *second = &factor(next, begin);
    for (std::int64_t j = begin; j < end; ++j, first += step, second += step) {
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) {
        const Vec<W> y = load(x + j * ldx + v * kLanes<W>, Full{});
        sum[0][v] -= y * *first;
        if (Rows > 1) sum[Rows - 1][v] -= y * *second;
      }
    }
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      store(x + i * ldx + v * kLanes<W>, sum[0][v], Full{});
      if (Rows > 1)
        store(x + next * ldx + v * kLanes<W>, sum[Rows - 1][v] - sum[0][v] * factor(next, i),
              Full{});
    }
  };
  std::int64_t s = 0;
  for (; s + 2 <= n; s += 2) solve_rows.template operator()<2>(s);
  if (s < n) solve_rows.template operator()<1>(s);
}
template <class W>
void solve(std::int64_t n, std::int64_t columns, bool transposed, const W* a, std::int64_t lda,
           W* x, std::int64_t ldx) {
  std::int64_t j = 0;
  for (; j + 8 * kLanes<W> <= columns; j += 8 * kLanes<W>)
    solve_columns<8>(n, transposed, a, lda, x + j, ldx);
  for (; j + 4 * kLanes<W> <= columns; j += 4 * kLanes<W>)
    solve_columns<4>(n, transposed, a, lda, x + j, ldx);
  for (; j < columns; j += 2 * kLanes<W>) solve_columns<2>(n, transposed, a, lda, x + j, ldx);
}

}  // namespace tfm::kernels::small
