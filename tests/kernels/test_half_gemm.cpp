// Products of 16-bit matrices, by the processor's instructions and by conversion, against float64.
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>

#include "kernels/cpu/half_gemm.h"
#include "support/gemm_case.h"

namespace tfm::test {
namespace {

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
          all.push_back({ta, tb, m, n, k, alpha, beta, bias, std::ssize(all) % 2});
  all.push_back({false, true, 6, 8201, 40, 1, 0, true, 7});  // several panels of columns
  all.push_back({false, false, 3, 8200, 33, 1, 1, false, 0});
  all.push_back({false, false, 5, 24, 8200, 1, 0, false, 0});
  return all;
}

// Twice the error of the exact result rounded to C, and that of sums in float.
template <class C, class T>
double allowed(const GemmCase<T>& c) {
  double rounding = 0;
  for (std::int64_t i = 0; i < c.p.m; ++i)
    for (std::int64_t j = 0; j < c.p.n; ++j) {
      const double want = c.want[i * c.ldc + j];
      rounding = std::max(rounding, std::abs(want - round_to<C>(want)));
    }
  return 2 * rounding + c.template bound<float>();
}

const auto gemm = [](cpu::Stream& s, const auto& args) { kernels::gemm(s, args); };

template <class T, class C>
void expect_products() {
  const auto converting = [](cpu::Stream& s, const auto& args) {
    kernels::half_gemm_by_conversion(s, args);
  };
  for (const Product& p : products()) {
    if (sizeof(C) == 4 && p.bias) continue;
    const GemmCase<T> c(p);
    const double bound = allowed<C>(c);
    for (int threads : {1, 2})
      EXPECT_TRUE(same_bits(c.template multiply<C>(threads, bound, gemm),
                            c.template multiply<C>(threads, bound, gemm)));
    c.template multiply<C>(1, bound, converting);
  }
}

TEST(HalfGemm, BrainFloatMatchesStraightLoops) { expect_products<bf16, bf16>(); }
TEST(HalfGemm, BrainFloatToFloatMatchesStraightLoops) { expect_products<bf16, float>(); }
TEST(HalfGemm, HalfMatchesStraightLoops) { expect_products<f16, f16>(); }
TEST(HalfGemm, HalfToFloatMatchesStraightLoops) { expect_products<f16, float>(); }

TEST(HalfGemm, LeavesTheTeamSizeAndRunsInsideARegion) {
  const GemmCase<bf16> c({false, true, 40, 30, 20, 1, 0, true, 0});
  const double bound = allowed<bf16>(c);
  expect_team_size_kept([&](int threads) { return c.multiply<bf16>(threads, bound, gemm); });
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
