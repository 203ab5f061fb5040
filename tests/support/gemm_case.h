#pragma once
// Matrix products against float64, for all types that kernels::gemm multiplies.
#include <malloc.h>
#include <omp.h>

#include "kernels/gemm.h"
#include "support/kernel_case.h"

namespace tfm::test {

struct Product {
  bool ta, tb;
  std::int64_t m, n, k;
  double alpha, beta;
  bool bias;
  std::int64_t padding = 1;  // of the rows in memory: three times as much in A, twice in C
};

// Operands that T holds exactly, and the result in float64.
template <class T>
struct GemmCase {
  explicit GemmCase(const Product& product)
      : p(product),
        lda((p.ta ? p.m : p.k) + 3 * p.padding),
        ldb((p.tb ? p.k : p.n) + p.padding),
        ldc(p.n + 2 * p.padding),
        a(rounded<T>(random_values((p.ta ? p.k : p.m) * lda, 1))),
        b(rounded<T>(random_values((p.tb ? p.n : p.k) * ldb, 2))),
        bias(rounded<T>(random_values(p.n, 3))),
        before(rounded<T>(random_values(p.m * ldc, 4))),
        want(before) {
    const Values product_of = reference::gemm(p.ta, p.tb, p.m, p.n, p.k, a, lda, b, ldb);
    for (std::int64_t i = 0; i < p.m; ++i)
      for (std::int64_t j = 0; j < p.n; ++j)
        want[i * ldc + j] = p.alpha * product_of[i * p.n + j] +
                            (p.beta == 0 ? 0 : p.beta * before[i * ldc + j]) +
                            (p.bias ? bias[j] : 0);
  }

  // Error of sums in floating point of type A, of elements near 1.
  template <class A>
  double bound() const {
    const double partial = std::max(1.0, std::sqrt(p.k) / 4);  // size of a partial sum
    return tolerance<A>(partial, static_cast<double>(p.k));
  }
  // Product by gemm(stream, args); what C held before must not matter where beta is 0.
  template <class C, class F>
  std::vector<C> multiply(int threads, double allowed, F gemm) const {
    Guarded<T> ga(a), gb(b), gbias(bias);
    Guarded<C> gc(before);
    if (p.beta == 0)
      for (std::int64_t i = 0; i < p.m; ++i)
        std::fill_n(gc.data() + i * ldc, p.n, C(std::numeric_limits<float>::quiet_NaN()));
    cpu::Stream s{threads};
    gemm(s, kernels::GemmArgs<T, C>{p.ta, p.tb, p.m, p.n, p.k, static_cast<Accum<T>>(p.alpha), ga,
                                    lda, gb, ldb, static_cast<Accum<T>>(p.beta), gc, ldc,
                                    p.bias ? gbias.data() : nullptr});
    const std::string sizes =
        std::to_string(p.m) + " x " + std::to_string(p.n) + " x " + std::to_string(p.k);
    expect_close(gc.values(), want, allowed, sizes.c_str());
    return gc.raw();
  }

  Product p;
  std::int64_t lda, ldb, ldc;
  Values a, b, bias, before, want;
};

// run(threads) leaves the OpenMP team size as it was; inside a parallel region, where each call has
// one thread, its bits are those of one thread.
template <class F>
void expect_team_size_kept(F run) {
  const int before = omp_get_max_threads();
  const auto alone = run(1);
  run(before + 1);
  EXPECT_EQ(omp_get_max_threads(), before);
  std::vector<std::remove_const_t<decltype(alone)>> results(3);
#pragma omp parallel for num_threads(3)
  for (auto& result : results) {
    const int inside = omp_get_max_threads();
    result = run(3);
    EXPECT_EQ(omp_get_max_threads(), inside);
  }
  for (const auto& result : results) EXPECT_TRUE(same_bits(result, alone));
  EXPECT_EQ(omp_get_max_threads(), before);
}

// A^T B of 16 threads leaves less than 40 MiB of scratch memory. oneDNN's matmul divides the terms
// of tall products among so many, each with a whole C.
template <class T>
void expect_little_memory(std::int64_t m, std::int64_t n, std::int64_t k) {
  const auto allocated = [] {
    const auto now = ::mallinfo2();
    return now.uordblks + now.hblkhd;
  };
  const std::size_t before = allocated();
  {
    const std::vector<T> a(k * m, T(1)), b(k * n, T(1));
    std::vector<float> c(m * n);
    cpu::Stream stream{16};
    kernels::gemm(stream, kernels::GemmArgs<T, float>{.transpose_a = true,
                                                      .m = m,
                                                      .n = n,
                                                      .k = k,
                                                      .a = a.data(),
                                                      .lda = m,
                                                      .b = b.data(),
                                                      .ldb = n,
                                                      .c = c.data(),
                                                      .ldc = n});
    EXPECT_EQ(std::ranges::count(c, static_cast<float>(k)), m * n);
  }
  EXPECT_LT(allocated(), before + (40 << 20));
}

}  // namespace tfm::test
