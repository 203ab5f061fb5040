// Matrix products and plain vector operations against straight loops.
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/onednn_isa.h"
#include "kernels/elementwise.h"
#include "support/gemm_case.h"

namespace tfm::test {
namespace {

template <class T>
class Gemm : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Gemm, Types);

template <class T>
std::vector<T> run(const Product& p, int threads) {
  const GemmCase<T> gemm_case(p);
  return gemm_case.template multiply<T>(
      threads, gemm_case.template bound<T>(),
      [](cpu::Stream& s, const auto& args) { kernels::gemm(s, args); });
}

TYPED_TEST(Gemm, MatchesStraightLoops) {
  for (bool ta : {false, true})
    for (bool tb : {false, true})
      for (auto [m, n, k] : {std::array{1, 1, 1},
                             {7, 13, 5},
                             {33, 17, 64},
                             {130, 50, 600},
                             {5, 100, 1},
                             {1, 40, 33}})
        for (auto [alpha, beta, bias] : {std::tuple{1.0, 0.0, false},
                                         {1.0, 0.0, true},
                                         {1.0, 1.0, false},
                                         {0.5, -0.25, false}})
          run<TypeParam>({ta, tb, m, n, k, alpha, beta, bias}, 1);
}

TYPED_TEST(Gemm, EmptySumScalesOrClears) {
  run<TypeParam>({false, false, 3, 4, 0, 1, 0, false}, 1);
  run<TypeParam>({false, true, 3, 4, 0, 1, 0.5, false}, 1);
  run<TypeParam>({false, true, 3, 4, 0, 1, 0, true}, 1);
  run<TypeParam>({false, false, 0, 4, 2, 1, 0, false}, 1);
}

TEST(GemmThreads, DoubleBitsDoNotDependOnTheTeam) {
  const Product p{false, true, 300, 70, 700, 1, 0, true};
  const auto one = run<double>(p, 1);
  for (int threads : {2, 3}) EXPECT_TRUE(same_bits(one, run<double>(p, threads)));
}

// Shapes of linear layers, and of gradients of weights, that oneDNN's sgemm is slow with.
const Product kLinear{false, true, 70, 130, 515, 1, 0, true, 0},
    kGradient{true, false, 1030, 257, 600, 1, -0.25, false, 3};

class WideFloats : public testing::Test {
 protected:
  void SetUp() override {
    if (!kernels::onednn_has(dnnl::cpu_isa::avx512_core)) GTEST_SKIP() << "needs AVX-512";
  }
};

TEST_F(WideFloats, AreMultipliedByMatmul) {
  for (Product p : {kLinear, kGradient})
    for (double alpha : {1.0, 0.5}) {
      p.alpha = alpha;
      if (alpha != 1) p.bias = false, p.beta = 0, p.padding = 0;
      const GemmCase<float> c(p);
      const auto matmul = [](cpu::Stream& s, const auto& args) {
        EXPECT_TRUE(kernels::matmul(args, s.threads));
      };
      EXPECT_TRUE(same_bits(run<float>(p, 2), c.multiply<float>(2, c.bound<float>(), matmul)));
    }
}

TEST_F(WideFloats, HaveTheirBiasAlsoWhereMatmulWouldScaleIt) {
  Product p = kLinear;
  p.alpha = 0.5;
  run<float>(p, 2);
}

TEST(RowGemm, AddsTheBiasOnce) { run<float>({false, true, 5, 2050, 130, 1, 0, true}, 2); }

TEST_F(WideFloats, LeaveTheTeamSizeAndAreMultipliedInsideARegion) {
  expect_team_size_kept([](int threads) { return run<float>(kGradient, threads); });
}

TEST_F(WideFloats, TakeLittleMemoryOfManyThreads) { expect_little_memory<float>(1536, 512, 4096); }

TYPED_TEST(Gemm, LeavesTheTeamSizeAndRunsInsideARegion) {
  const Product p{true, false, 40, 30, 20, 1, 0, true};
  expect_team_size_kept([&](int threads) { return run<TypeParam>(p, threads); });
}

TYPED_TEST(Gemm, CopyAndBiasAndColumnSum) {
  using T = TypeParam;
  for (std::int64_t rows : {1, 5, 70, 1030})
    for (std::int64_t cols : {1, 16, 37}) {
      const Values x = random_values(rows * cols, 1), y = random_values(rows * cols, 2),
                   row = random_values(cols, 3);
      std::vector<T> sums[2], copies[2];
      for (int threads : {1, 3}) {
        cpu::Stream s{threads};
        Guarded<T> gx(x), gy(y), gz(rows * cols), grow(row), gsum(cols), gadd(row), gb(x);
        kernels::copy(s, kernels::CopyArgs<T>{rows * cols, gx, gy, true, T{0.5}});
        expect_close(gy.values(), plus(y, x, 0.5), tolerance<T>(2), "y += x/2");
        kernels::copy(s, kernels::CopyArgs<T>{rows * cols, gx, gz, false, T{1}});
        EXPECT_EQ(gz.values(), x);
        kernels::copy(s, kernels::CopyArgs<T>{rows * cols, gx, gz, false, T{-2}});
        expect_close(gz.values(), plus(x, x, -3), 0, "-2x");
        kernels::add_bias(s, kernels::AddBiasArgs<T>{rows, cols, grow, gb});
        kernels::column_sum(s, kernels::ColumnSumArgs<T>{rows, cols, cols, gx, gsum, false});
        kernels::column_sum(s, kernels::ColumnSumArgs<T>{rows, cols, cols, gx, gadd, true});
        Values want(cols), biased = x;
        for (std::int64_t i = 0; i < rows * cols; ++i)
          want[i % cols] += x[i], biased[i] += row[i % cols];
        expect_close(gb.values(), biased, tolerance<T>(2), "x + bias");
        expect_close(gsum.values(), want, tolerance<T>(1, rows * 4), "column sum");
        expect_close(gadd.values(), plus(row, want), tolerance<T>(1, rows * 4), "added column sum");
        sums[threads / 2] = gsum.raw();
        copies[threads / 2] = gy.raw();
      }
      EXPECT_TRUE(same_bits(sums[0], sums[1]));
      EXPECT_TRUE(same_bits(copies[0], copies[1]));
    }
}

}  // namespace
}  // namespace tfm::test
