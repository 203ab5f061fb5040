// Products of 16-bit matrices, by the processor's instructions and by conversion, against float64.
#include <omp.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>

#include "kernels/cpu/half_gemm.h"
#include "support/kernel_case.h"

namespace tfm::test {
namespace {

struct Product {
  bool ta, tb;
  std::int64_t m, n, k;
  double alpha, beta;
  bool bias;
  std::int64_t padding;  // of the rows in memory
};

std::vector<Product> products() {
  std::vector<Product> all;
  for (bool ta : {false, true})
    for (bool tb : {false, true})
      for (auto [m, n, k] : {std::array{1, 1, 1},
                             {7, 13, 5},
                             {33, 17, 64},
                             {130, 50, 600},
                             {5, 100, 1},
                             {96, 128, 64}})
        for (auto [alpha, beta, bias] : {std::tuple{1.0, 0.0, false},
                                         {1.0, 0.0, true},
                                         {1.0, 1.0, false},
                                         {0.5, 0.0, true},
                                         {0.5, -0.25, false}})
          all.push_back(
              {ta, tb, m, n, k, alpha, beta, bias, std::ssize(all) % 2 ? 3 : std::int64_t{0}});
  all.push_back({false, true, 6, 8201, 40, 1, 0, true, 7});  // several panels of columns
  all.push_back({false, false, 3, 8200, 33, 1, 1, false, 0});
  all.push_back({false, false, 5, 24, 8200, 1, 0, false, 0});
  return all;
}

template <class T>
Values rounded(Values v) {
  for (double& x : v) x = static_cast<float>(T(static_cast<float>(x)));
  return v;
}

template <class T, class C>
struct Operands {
  Product p;
  std::int64_t lda, ldb, ldc;
  std::vector<T> a, b, bias;
  std::vector<C> c;
  Values want;
  double bound;

  explicit Operands(const Product& product) : p(product) {
    lda = (p.ta ? p.m : p.k) + p.padding, ldb = (p.tb ? p.k : p.n) + p.padding,
    ldc = p.n + p.padding;
    const Values va = rounded<T>(random_values((p.ta ? p.k : p.m) * lda, 1)),
                 vb = rounded<T>(random_values((p.tb ? p.n : p.k) * ldb, 2)),
                 vbias = rounded<T>(random_values(p.n, 3));
    want = rounded<T>(random_values(p.m * ldc, 4));
    a = std::vector<T>(va.begin(), va.end());
    b = std::vector<T>(vb.begin(), vb.end());
    bias = std::vector<T>(vbias.begin(), vbias.end());
    c = std::vector<C>(want.begin(), want.end());
    if (p.beta == 0)  // what C held must not matter
      for (std::int64_t i = 0; i < p.m; ++i)
        std::fill_n(c.data() + i * ldc, p.n, C(std::numeric_limits<float>::quiet_NaN()));
    const Values product_of = reference::gemm(p.ta, p.tb, p.m, p.n, p.k, va, lda, vb, ldb);
    double rounding = 0;  // error of the exact result rounded to C
    for (std::int64_t i = 0; i < p.m; ++i)
      for (std::int64_t j = 0; j < p.n; ++j) {
        double& w = want[i * ldc + j];
        w = p.alpha * product_of[i * p.n + j] + (p.beta == 0 ? 0 : p.beta * w) +
            (p.bias ? vbias[j] : 0);
        rounding = std::max(rounding, std::abs(w - static_cast<float>(C(static_cast<float>(w)))));
      }
    const double partial = std::max(1.0, std::sqrt(p.k) / 4);  // size of a partial sum
    bound = 2 * rounding + tolerance<float>(partial, static_cast<double>(p.k));
  }

  template <class F>
  std::vector<C> multiply(int threads, F gemm) const {
    std::vector<C> result = c;
    cpu::Stream s{threads};
    gemm(s, kernels::GemmArgs<T, C>{p.ta, p.tb, p.m, p.n, p.k, static_cast<float>(p.alpha),
                                    a.data(), lda, b.data(), ldb, static_cast<float>(p.beta),
                                    result.data(), ldc, p.bias ? bias.data() : nullptr});
    const std::string sizes =
        std::to_string(p.m) + " x " + std::to_string(p.n) + " x " + std::to_string(p.k);
    expect_close(Values(result.begin(), result.end()), want, bound, sizes.c_str());
    return result;
  }
};

template <class T, class C>
void expect_products() {
  const auto gemm = [](cpu::Stream& s, const auto& g) { kernels::gemm(s, g); };
  const auto converting = [](cpu::Stream& s, const auto& g) {
    kernels::half_gemm_by_conversion(s, g);
  };
  for (const Product& p : products()) {
    if (sizeof(C) == 4 && p.bias) continue;
    const Operands<T, C> operands(p);
    for (int threads : {1, 2})
      EXPECT_TRUE(same_bits(operands.multiply(threads, gemm), operands.multiply(threads, gemm)));
    operands.multiply(1, converting);
  }
}

TEST(HalfGemm, BrainFloatMatchesStraightLoops) { expect_products<bf16, bf16>(); }
TEST(HalfGemm, BrainFloatToFloatMatchesStraightLoops) { expect_products<bf16, float>(); }
TEST(HalfGemm, HalfMatchesStraightLoops) { expect_products<f16, f16>(); }
TEST(HalfGemm, HalfToFloatMatchesStraightLoops) { expect_products<f16, float>(); }

TEST(HalfGemm, LeavesTheTeamSizeAndRunsInsideARegion) {
  const auto gemm = [](cpu::Stream& s, const auto& g) { kernels::gemm(s, g); };
  const Operands<bf16, bf16> operands({false, true, 40, 30, 20, 1, 0, true, 0});
  const int before = omp_get_max_threads();
  const std::vector<bf16> alone = operands.multiply(before + 1, gemm);
  EXPECT_EQ(omp_get_max_threads(), before);
  std::vector<bf16> results[3];
#pragma omp parallel for num_threads(3)
  for (auto& result : results) result = operands.multiply(3, gemm);
  for (const auto& result : results) EXPECT_TRUE(same_bits(result, alone));
  EXPECT_EQ(omp_get_max_threads(), before);
}

// CTest runs this suite a second time with ONEDNN_MAX_CPU_ISA=AVX512_CORE.
TEST(HalfGemm, UsesWhatTheProcessorHas) {
  const char* most = std::getenv("ONEDNN_MAX_CPU_ISA");
  if (most && std::string_view(most) == "AVX512_CORE") {
    EXPECT_FALSE(kernels::multiplies_natively<bf16>());
    EXPECT_FALSE(kernels::multiplies_natively<f16>());
    return;
  }
  std::ostringstream info;
  info << std::ifstream("/proc/cpuinfo").rdbuf();
  if (most) GTEST_SKIP() << "ONEDNN_MAX_CPU_ISA is " << most;
  EXPECT_EQ(kernels::multiplies_natively<bf16>(),
            info.str().find(" avx512_bf16") != std::string::npos);
}

}  // namespace
}  // namespace tfm::test
