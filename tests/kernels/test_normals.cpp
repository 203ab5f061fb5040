#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/normals.h"

namespace tfm::kernels {
namespace {

constexpr RandomKey kKey{17, Purpose::init, stream_of("decoder.0.ffn.up.weight"), 0};

std::vector<float> numbers(std::uint64_t first, std::int64_t n, float deviation = 1) {
  std::vector<float> out(static_cast<std::size_t>(n));
  normals(kKey, first, n, deviation, out.data());
  return out;
}

// As the standard library's functions in double give it.
float expected(std::uint64_t element) {
  const Philox4 words = kKey.block(element / 4);
  const std::size_t pair = element % 4 / 2 * 2;
  const double radius = std::sqrt(-2.0 * std::log((words[pair] + 1.0) * 0x1p-32)),
               angle = 6.283185307179586 * (words[pair + 1] * 0x1p-32);
  return static_cast<float>(radius * (element % 2 ? std::sin(angle) : std::cos(angle)));
}

TEST(Normals, AreThoseOfTheStandardLibrary) {
  const std::vector<float> z = numbers(0, 1 << 20);
  int others = 0;
  for (std::size_t i = 0; i < z.size(); ++i) {
    const float e = expected(i);
    others += z[i] != e;
    ASSERT_NEAR(z[i], e, std::fabs(e) * 0x1p-23) << i;
  }
  EXPECT_LE(others, 1);
}

TEST(Normals, DoNotDependOnWhereAPieceStarts) {
  const std::vector<float> whole = numbers(0, 300, 0.02f);
  for (std::uint64_t first = 0; first < 40; ++first)
    for (const std::int64_t n : {0, 1, 2, 3, 5, 31, 32, 33, 100}) {
      const std::vector<float> piece = numbers(first, n, 0.02f);
      ASSERT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + std::ptrdiff_t(first)));
    }
  std::vector<double> wide(100);
  normals(kKey, 7, 100, 0.02f, wide.data());
  EXPECT_TRUE(std::equal(wide.begin(), wide.end(), whole.begin() + 7));
  const std::uint64_t far = (std::uint64_t{1} << 34) - 6;  // counters that need a second word
  EXPECT_EQ(numbers(far, 40)[9], expected(far + 9));
}

// Of 2^22 numbers, on every processor: 64-bit FNV-1a of their words.
TEST(Normals, HaveTheseBits) {
  std::uint64_t h = 14695981039346656037u;
  for (const float z : numbers(0, 1 << 22))
    h = (h ^ std::bit_cast<std::uint32_t>(z)) * 1099511628211u;
  EXPECT_EQ(h, 3077302909698340648u);
}

// Mean, variance, skewness and kurtosis, within 5 standard errors.
TEST(Normals, HaveTheMomentsOfANormalDistribution) {
  constexpr int n = 1 << 20;
  double sum[5] = {};
  for (const double z : numbers(0, n))
    for (int k = 1; k <= 4; ++k) sum[k] += std::pow(z, k) / n;
  EXPECT_NEAR(sum[1], 0, 5 * std::sqrt(1.0 / n));
  EXPECT_NEAR(sum[2], 1, 5 * std::sqrt(2.0 / n));
  EXPECT_NEAR(sum[3], 0, 5 * std::sqrt(15.0 / n));
  EXPECT_NEAR(sum[4], 3, 5 * std::sqrt(96.0 / n));
}

}  // namespace
}  // namespace tfm::kernels
