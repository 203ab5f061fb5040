// Newton-Schulz iterations in every type of parameters, against those in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "optim/rules/newton_schulz.h"

namespace tfm {
namespace {

constexpr std::int64_t kSteps = 5;

// The result, which must be of numbers of type P, and what lies behind the workspace untouched.
template <class P>
std::vector<double> orthogonal(const std::vector<double>& x, std::int64_t rows, std::int64_t cols,
                               std::int64_t steps = kSteps) {
  using T = Accum<P>;
  constexpr std::byte kUntouched{0x5a};
  std::vector<T> matrix(x.begin(), x.end());
  const auto bytes = static_cast<std::size_t>(
      optim::newton_schulz_bytes(rows * cols, std::min(rows, cols), dtype_of<P>));
  std::vector<std::byte> workspace(bytes + 64, kUntouched);
  cpu::Stream stream{2};
  optim::orthogonalize(&stream, dtype_of<P>, matrix.data(), rows, cols, steps, workspace.data());
  for (std::size_t i = bytes; i < workspace.size(); ++i)
    EXPECT_EQ(workspace[i], kUntouched) << "behind the workspace";
  for (const T v : matrix) EXPECT_EQ(static_cast<T>(static_cast<P>(v)), v);
  return {matrix.begin(), matrix.end()};
}

double norm_of(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}

template <class P>
void expect_near(const std::vector<double>& x, std::int64_t rows, std::int64_t cols,
                 double tolerance) {
  for (const std::int64_t steps : {kSteps - 1, kSteps}) {
    const std::vector<double> expected = orthogonal<double>(x, rows, cols, steps);
    std::vector<double> apart = orthogonal<P>(x, rows, cols, steps);
    for (std::size_t i = 0; i < apart.size(); ++i) apart[i] -= expected[i];
    EXPECT_LT(norm_of(apart), tolerance * norm_of(expected))
        << name_of(dtype_of<P>) << ", " << rows << " x " << cols << ", " << steps << " steps";
  }
}

TEST(NewtonSchulz, EveryTypeFollowsFloat64) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  for (const auto& [rows, cols] : {std::pair{64, 160}, {160, 64}, {96, 96}, {33, 35}, {1, 40}}) {
    std::vector<double> x(static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols));
    for (double& v : x) v = 1e-3 * normal(random);
    expect_near<float>(x, rows, cols, 1e-5);
    expect_near<f16>(x, rows, cols, 0.01);
    expect_near<bf16>(x, rows, cols, 0.05);
  }
}

TEST(NewtonSchulz, ZerosStayZeros) {
  const std::vector<double> zeros(12 * 20);
  EXPECT_EQ(orthogonal<bf16>(zeros, 12, 20), zeros);
  EXPECT_EQ(orthogonal<float>(zeros, 12, 20), zeros);
}

}  // namespace
}  // namespace tfm
