#pragma once
// A team of chunks.h that is one thread.
#include "kernels/chunks.h"
#include "kernels/cpu/small_products.h"

namespace tfm::kernels {
namespace {

struct ThreadAlone {
  template <class F>
  TFM_INLINE void each(std::int64_t rows, std::int64_t cols, F&& f) const {
    for (std::int64_t i = 0; i < rows; ++i) {
#pragma omp simd
      for (std::int64_t j = 0; j < cols; ++j) f(i, j);
    }
  }
  template <class F>
  TFM_INLINE void down(std::int64_t rows, std::int64_t cols, F&& f) const {
    each(rows, cols, f);
  }
  template <class Term, class F>
  TFM_INLINE void sums(std::int64_t rows, std::int64_t cols, Term&& term, F&& f) const {
    for (std::int64_t i = 0; i < rows; ++i) {
      decltype(term(i, i)) sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t j = 0; j < cols; ++j) sum += term(i, j);
      f(i, sum);
    }
  }
  template <class F>
  void once(F&& f) const {
    f();
  }
  template <class W>
  void product(std::int64_t m, std::int64_t n, std::int64_t k, std::type_identity_t<W> alpha,
               const W* a, std::int64_t row, std::int64_t term, Matrix<W> b,
               std::type_identity_t<W> beta, Matrix<W> c) const {
    small::product<W>(m, n, k, alpha, {a, row, term}, b.at, b.pitch, beta, c.at, c.pitch);
  }
  template <class W>
  void solve(std::int64_t n, std::int64_t cols, bool transposed, Matrix<W> a, Matrix<W> x) const {
    small::solve(n, cols, transposed, a.at, a.pitch, x.at, x.pitch);
  }
};

}  // namespace
}  // namespace tfm::kernels
