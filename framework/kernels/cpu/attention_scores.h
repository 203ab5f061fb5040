#pragma once
// Shared by forward and backward: scores of tiles, and products of them.
#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/simd_softcap.h"
#include "kernels/gemm.h"

namespace tfm::kernels {

// Score of key i from the product q . k, which is already scaled: a factor here would be fused into
// the difference from the row's largest score, which is rounded.
template <class T, bool Added>
struct Score {
  const T* added;
  template <class Lanes>
  TFM_INLINE Vec<T> operator()(Vec<T> product, std::int64_t i, Lanes m) const {
    if constexpr (Added) return product + load(added + i, m);
    return product;
  }
};

template <class T>
struct RowSum {
  T max, sum;
};

// Replaces the products of a row by exp(score - max), and by zeros from `visible` to `width`.
template <class T, bool Added>
RowSum<T> exponentials(T* row, std::int64_t visible, std::int64_t width,
                       const Score<T, Added>& score) {
  constexpr T lowest = -std::numeric_limits<T>::infinity();
  Vec<T> top = splat(lowest), sum{};
  each<T>(visible, [&](std::int64_t i, auto m) TFM_INLINE {
    top = larger<T>(only<T>(score(load(row + i, m), i, m), m, lowest), top);
  });
  const T max = max_of<T>(top);
  each<T>(visible, [&](std::int64_t i, auto m) TFM_INLINE {
    const Vec<T> e = only<T>(exp(score(load(row + i, m), i, m) - max), m);
    sum += e;
    store(row + i, e, m);
  });
  std::fill(row + visible, row + width, T{0});
  return {max, sum_of<T>(sum)};
}

template <class T>
void multiply(T* row, const T* factor, std::int64_t n) {
  each<T>(n, [&](std::int64_t i, auto m)
                 TFM_INLINE { store(row + i, load(row + i, m) * load(factor + i, m), m); });
}

// c (m, n) = alpha op(a) op(b) + beta c, computed by the calling thread.
template <class T>
void tile_product(bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
                  std::int64_t lda, const T* b, std::int64_t ldb, T beta, T* c, std::int64_t ldc,
                  T alpha = 1) {
  cpu::Stream here{1};
  gemm(here, GemmArgs<T>{.transpose_a = ta,
                         .transpose_b = tb,
                         .m = m,
                         .n = n,
                         .k = k,
                         .alpha = alpha,
                         .a = a,
                         .lda = lda,
                         .b = b,
                         .ldb = ldb,
                         .beta = beta,
                         .c = c,
                         .ldc = ldc});
}

template <class T>
void zero_rows(T* p, std::int64_t rows, std::int64_t cols, std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r) std::fill_n(p + r * stride, cols, T{0});
}

template <class T>
void check(const AttentionArgs<T>& a) {
  TFM_CHECK(a.kv_heads > 0 && a.heads % a.kv_heads == 0,
            std::to_string(a.heads) + " query heads cannot be divided evenly among " +
                std::to_string(a.kv_heads) + " key/value heads");
}

}  // namespace tfm::kernels
