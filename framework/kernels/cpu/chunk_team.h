#pragma once
// A team of chunks.h that is one thread, for data of type T.
#include "kernels/chunks.h"
#include "kernels/cpu/half_gemm.h"
#include "kernels/cpu/rounded_product.h"
#include "kernels/cpu/small_products.h"

namespace tfm::kernels {
namespace {

template <class T>
struct ThreadAlone {
  // Whether factors of products are rounded to T, whose products the processor has.
  static bool rounds() {
    if constexpr (std::is_same_v<T, bf16>) return multiplies_natively<bf16>();
    return false;
  }
  static std::int64_t triangle_rows() { return rounds() ? 64 : 16; }

  template <class F>
  TFM_INLINE void each(std::int64_t rows, std::int64_t cols, F&& f) const {
    for (std::int64_t i = 0; i < rows; ++i) {
#pragma omp simd
      for (std::int64_t j = 0; j < cols; ++j) f(i, j);
    }
  }
  template <class F>
  TFM_INLINE void below(std::int64_t n, F&& f) const {
    for (std::int64_t i = 1; i < n; ++i) {
#pragma omp simd
      for (std::int64_t j = 0; j < i; ++j) f(i, j);
    }
  }
  template <class F>
  TFM_INLINE void down(std::int64_t n, F&& f) const {
    below(n, f);
  }
  template <class Term, class F>
  TFM_INLINE void sums(std::int64_t rows, std::int64_t cols, Term&& term, F&& f) const {
    for (std::int64_t i = 0; i < rows; ++i) f(i, sum_of(i, cols, term));
  }
  template <class Term, class F>
  TFM_INLINE void sums_below(std::int64_t n, Term&& term, F&& f) const {
    for (std::int64_t i = 0; i < n; ++i) f(i, sum_of(i, i, term));
  }
  template <class F>
  void once(F&& f) const {
    f();
  }
  template <class W>
  void product(std::int64_t m, std::int64_t n, std::int64_t k, std::type_identity_t<W> alpha,
               const W* a, std::int64_t row, std::int64_t term, Matrix<W> b,
               std::type_identity_t<W> beta, Matrix<W> c) const {
    if constexpr (std::is_same_v<T, bf16>)
      if (rounds())
        return rounded_product(m, n, k, alpha, a, row, term, b.at, b.pitch, beta, c.at, c.pitch);
    small::product<W>(m, n, k, alpha, {a, row, term}, b.at, b.pitch, beta, c.at, c.pitch);
  }
  template <class W>
  void solve(std::int64_t n, std::int64_t cols, bool transposed, Matrix<W> a, Matrix<W> x) const {
    small::solve(n, cols, transposed, a.at, a.pitch, x.at, x.pitch);
  }

 private:
  template <class Term>
  TFM_INLINE static auto sum_of(std::int64_t i, std::int64_t cols, Term&& term) {
    decltype(term(i, i)) sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = 0; j < cols; ++j) sum += term(i, j);
    return sum;
  }
};

}  // namespace
}  // namespace tfm::kernels
