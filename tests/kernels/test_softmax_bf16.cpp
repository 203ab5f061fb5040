// Rows of the softmax between products of bf16 against float64.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/cpu/half_gemm.h"
#include "kernels/cpu/softmax_bf16.h"

namespace tfm::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// `visible` products that give scores down to far below the largest, something added to them, which
// may hide them, and factors of dropout.
struct Case {
  std::int64_t visible, width = (visible + 15) / 16 * 16 + 16;
  bool adds, drops, slopes;
  std::vector<float> products = std::vector<float>(width, kInfinity), added, factors, gradients,
                     slope;
  std::vector<double> weights;  // before dropout
  double lse = 0;

  Case(std::int64_t n, bool add, bool drop, bool sloped = false)
      : visible(n), adds(add), drops(drop), slopes(sloped) {
    for (std::int64_t i = 0; i < n; ++i) {
      products[i] = i % 7 == 6 ? -900.0f : 40 * std::sin(0.7f * static_cast<float>(i));
      added.push_back(i % 5 == 3 ? -kInfinity : std::cos(static_cast<float>(i)));
      factors.push_back(i % 4 == 1 ? 0.0f : 1.25f);
      slope.push_back(slopes ? 0.5f + static_cast<float>(i % 3) : 1.0f);
      gradients.push_back(std::sin(1.3f * static_cast<float>(i)));
      weights.push_back(0.125 * products[i] + (adds ? added[i] : 0.0));
    }
    double sum = 0;
    for (double w : weights) sum += std::exp(w);
    lse = std::log(sum);
    for (double& w : weights) w = std::exp(w - lse);
  }
  kernels::ProductRow row() {
    return {products.data(),
            visible,
            width,
            0.125f,
            adds ? added.data() : nullptr,
            drops ? factors.data() : nullptr,
            slopes ? slope.data() : nullptr};
  }
  double factor(std::int64_t i) const { return drops ? factors[i] : 1; }
};

template <class F>
void each_case(F&& f) {
  if (!kernels::multiplies_natively<bf16>()) GTEST_SKIP() << "this processor converts bf16";
  for (std::int64_t visible : {1, 15, 16, 17, 50, 256})
    for (int options = 0; options < 8; ++options) {
      SCOPED_TRACE(testing::Message() << visible << " keys, options " << options);
      f(Case(visible, options & 1, options & 2, options & 4));
    }
}

void expect_zeros(const std::vector<bf16>& got, std::int64_t from) {
  for (std::int64_t i = from; i < std::ssize(got); ++i)
    EXPECT_EQ(static_cast<float>(got[i]), 0) << i;
}

constexpr double kHalfUnit = 1.0 / 256,  // of bf16, relative
    kTiny = 0x1p-125;                    // about where exponentials become 0

TEST(SoftmaxRow, MatchesDoubleRoundedOnce) {
  each_case([](Case c) {
    std::vector<bf16> got(c.width, bf16(7.0f));
    float lse = 0;
    const double sum = kernels::softmax_row(c.row(), got.data(), lse);
    EXPECT_NEAR(lse, c.lse, 1e-5);
    const double scale = std::accumulate(c.weights.begin(), c.weights.end(), 0.0) / sum;
    for (std::int64_t i = 0; i < c.visible; ++i) {
      const double want = c.weights[i] * c.factor(i);
      EXPECT_NEAR(got[i] * scale, want, want * (kHalfUnit + 2e-6) + kTiny) << i;
    }
    expect_zeros(got, c.visible);
  });
}

TEST(SoftmaxRow, GradientMatchesDoubleRoundedOnce) {
  each_case([](Case c) {
    for (bool given : {false, true}) {
      double delta = 0;
      for (std::int64_t i = 0; i < c.visible; ++i)
        delta += c.weights[i] * c.gradients[i] * c.factor(i);
      const float known = static_cast<float>(delta);
      std::vector<bf16> weights(c.width, bf16(7.0f)), rounded = weights;
      std::vector<float> gradients(c.visible, -0.0f), more(c.visible, 0.5f);
      const auto run = [&](float* bias_gradients) {
        Case copy = c;
        kernels::softmax_gradient_row(copy.row(), static_cast<float>(c.lse),
                                      given ? &known : nullptr, copy.gradients.data(),
                                      weights.data(), rounded.data(), bias_gradients);
      };
      run(nullptr);
      run(gradients.data());
      run(more.data());
      for (std::int64_t i = 0; i < c.visible; ++i) {
        const double p = c.weights[i], want = p * (c.gradients[i] * c.factor(i) - delta);
        EXPECT_NEAR(weights[i], p * c.factor(i), p * (1.25 * kHalfUnit + 5e-6) + kTiny) << i;
        EXPECT_NEAR(gradients[i], want, 1e-5 * p + kTiny) << i;
        EXPECT_EQ(more[i], 0.5f + gradients[i]) << i;
        const float of_product = gradients[i] * c.slope[i],
                    normal = std::fpclassify(of_product) == FP_SUBNORMAL
                                 ? std::copysign(0.0f, of_product)
                                 : of_product;
        EXPECT_EQ(rounded[i].bits, bf16(normal).bits) << i;
      }
      expect_zeros(weights, c.visible);
      expect_zeros(rounded, c.visible);
    }
  });
}

TEST(SoftmaxRow, KeepsWhatIsNotANumber) {
  if (!kernels::multiplies_natively<bf16>()) GTEST_SKIP() << "this processor converts bf16";
  Case c(20, false, false);
  c.products[3] = std::nanf("");
  std::vector<bf16> got(c.width);
  float lse = 0;
  EXPECT_TRUE(std::isnan(kernels::softmax_row(c.row(), got.data(), lse)));
  EXPECT_TRUE(std::isnan(lse));
  EXPECT_TRUE(std::isnan(static_cast<float>(got[3])));
}

TEST(SoftmaxRow, SeesNothing) {
  if (!kernels::multiplies_natively<bf16>()) GTEST_SKIP() << "this processor converts bf16";
  std::vector<float> products(16, 1.0f);
  std::vector<bf16> got(16, bf16(7.0f));
  float lse = 0;
  EXPECT_EQ(kernels::softmax_row({products.data(), 0, 16, 1, nullptr, nullptr}, got.data(), lse),
            0);
  EXPECT_EQ(lse, -kInfinity);
  expect_zeros(got, 0);
}

}  // namespace
}  // namespace tfm::test
