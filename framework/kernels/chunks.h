#pragma once
// Attention in chunks of positions, for CPUs and GPUs. A `Team` computes with matrices in memory of
// its own, one step after the other:
//   each(rows, cols, f)         f(i, j) for all elements
//   below(n, f)                 f(i, j) for j < i < n
//   down(n, f)                  the same in the order of rows within each column; what it writes
//   can
//                               be read only after one more step
//   sums(rows, cols, term, f)   f(i, the sum of term(i, j) over j)
//   sums_below(n, term, f)      the same over j < i
//   once(f)
//   product(m, n, k, alpha, a, row, term, b, beta, c): c = alpha a b + beta c, where element (i, k)
//     of a is a[i row + k term], and rows of b and c are those of Matrix
//   solve(n, cols, transposed, a, x): (I + A) y = x in place, A being strictly lower
//   triangle_rows(): rows that products with triangular matrices compute at a time
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace tfm::kernels {
namespace {

// Rows that are `pitch` elements apart, with room for whole tiles of small_products.h; the pitch is
// no multiple of 256 bytes, which would let few lines of a cache hold a column.
template <class W>
struct Matrix {
  W* at = nullptr;
  std::int64_t pitch = 0;
  constexpr W& operator()(std::int64_t i, std::int64_t j) const { return at[i * pitch + j]; }
};

// What a team keeps, piece by piece. `memory` may be null: only `elements` counts.
template <class W>
struct ChunkMemory {
  std::int64_t elements = 0;
  W* memory;

  constexpr explicit ChunkMemory(W* base) : memory(base) {}
  constexpr W* piece(std::int64_t n) {
    W* const p = memory ? memory + elements : nullptr;
    elements += (n + 15) / 16 * 16;
    return p;
  }
  constexpr Matrix<W> matrix(std::int64_t rows, std::int64_t cols) {
    const std::int64_t pitch = (cols + 31) / 32 * 32 + 16;
    return {piece(rows * pitch), pitch};
  }
};

// Products whose left factor has rows of its own, or is transposed.
template <class Team, class W>
constexpr void product(const Team& team, std::int64_t rows, std::int64_t cols, std::int64_t terms,
                       std::type_identity_t<W> alpha, Matrix<W> left, Matrix<W> right,
                       std::type_identity_t<W> beta, Matrix<W> to) {
  team.product(rows, cols, terms, alpha, left.at, left.pitch, std::int64_t{1}, right, beta, to);
}
template <class Team, class W>
constexpr void product_t(const Team& team, std::int64_t rows, std::int64_t cols, std::int64_t terms,
                         std::type_identity_t<W> alpha, Matrix<W> left, Matrix<W> right,
                         std::type_identity_t<W> beta, Matrix<W> to) {
  team.product(rows, cols, terms, alpha, left.at, std::int64_t{1}, left.pitch, right, beta, to);
}
template <class Team, class W>
constexpr void transpose(const Team& team, std::int64_t rows, std::int64_t cols, Matrix<W> from,
                         Matrix<W> to) {
  team.each(cols, rows, [&](std::int64_t j, std::int64_t i) { to(j, i) = from(i, j); });
}

// to += left right, or left^T right, where left (n, n) is lower triangular, with zeros above.
template <class Team, class W>
constexpr void add_lower(const Team& team, std::int64_t n, std::int64_t cols, Matrix<W> left,
                         Matrix<W> right, Matrix<W> to) {
  const std::int64_t block = team.triangle_rows();
  for (std::int64_t i = 0; i < n; i += block) {
    const std::int64_t end = i + block < n ? i + block : n;
    product(team, end - i, cols, end, 1, Matrix<W>{&left(i, 0), left.pitch}, right, 1,
            Matrix<W>{&to(i, 0), to.pitch});
  }
}
template <class Team, class W>
constexpr void add_lower_t(const Team& team, std::int64_t n, std::int64_t cols, Matrix<W> left,
                           Matrix<W> right, Matrix<W> to) {
  const std::int64_t block = team.triangle_rows();
  for (std::int64_t i = 0; i < n; i += block) {
    const std::int64_t end = i + block < n ? i + block : n;
    product_t(team, end - i, cols, n - i, 1, Matrix<W>{&left(i, i), left.pitch},
              Matrix<W>{&right(i, 0), right.pitch}, 1, Matrix<W>{&to(i, 0), to.pitch});
  }
}
// to = alpha left right, of which the lower triangle is wanted, and whole blocks of its diagonal
// are written.
template <class Team, class W>
constexpr void lower_of(const Team& team, std::int64_t n, std::int64_t terms,
                        std::type_identity_t<W> alpha, Matrix<W> left, Matrix<W> right,
                        Matrix<W> to) {
  const std::int64_t block = team.triangle_rows();
  for (std::int64_t i = 0; i < n; i += block) {
    const std::int64_t end = i + block < n ? i + block : n;
    product(team, end - i, end, terms, alpha, Matrix<W>{&left(i, 0), left.pitch}, right, 0,
            Matrix<W>{&to(i, 0), to.pitch});
  }
}

}  // namespace
}  // namespace tfm::kernels
