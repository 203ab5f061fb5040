// Matrix products and plain vector operations against straight loops.
#include "kernels/cpu/float_gemm.h"
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

std::vector<float> run_float_gemm(const Product& p, int threads) {
  const GemmCase<float> c(p);
  return c.multiply<float>(threads, c.bound<float>(),
                           [](cpu::Stream& s, const auto& args) { kernels::float_gemm(s, args); });
}

class FloatGemm : public testing::Test {
 protected:
  void SetUp() override {
    if (!kernels::has_float_gemm())
      GTEST_SKIP() << "libraries for processors without AVX-512 have no such product";
  }
};

// Blocks and panels that are not whole, and several parts of columns and of terms.
TEST_F(FloatGemm, MatchesStraightLoopsWithTheSameBitsForAnyTeam) {
  for (auto [m, n, k] : {std::array{1, 1, 1},
                         {14, 32, 256},
                         {33, 17, 64},
                         {700, 70, 600},
                         {3, 2150, 1030},
                         {230, 70, 1030}})
    for (const auto& [ta, tb, alpha, beta, bias] : {std::tuple{true, false, 1.0, 0.0, false},
                                                    {true, false, 1.0, 1.0, false},
                                                    {false, true, 0.5, -0.25, false},
                                                    {false, false, 0.5, 0.0, true}}) {
      const Product p{ta, tb, m, n, k, alpha, beta, bias};
      const std::vector<float> one = run_float_gemm(p, 1);
      for (int threads : {2, 3, 4}) EXPECT_TRUE(same_bits(one, run_float_gemm(p, threads)));
    }
}

TEST_F(FloatGemm, ComputesGradientsOfWeightsInFp32) {
  const Product p{true, false, 1024, 256, 1100, 1, 0, false};
  EXPECT_TRUE(same_bits(run<float>(p, 2), run_float_gemm(p, 1)));
}

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
