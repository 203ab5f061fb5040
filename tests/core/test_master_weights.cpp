// Master weights of bf16 parameters, in two halves.
#include <gtest/gtest.h>

#include <cmath>

#include "core/master_weights.h"
#include "kernels/cpu/simd_weights.h"

namespace tfm {
namespace {

// Zero, denormals, ordinary numbers, the largest ones, infinity and NaN.
constexpr std::uint32_t kHighs[] = {0,      1,      0x7F,   0x80,   0x3F7F,
                                    0x3F80, 0x7F7F, 0x7F80, 0x7FC0, 0x7FFF};

TEST(MasterWeights, EveryLowerHalfComesBack) {
  for (const std::uint32_t high : kHighs)
    for (const std::uint32_t sign : {0u, 0x8000u})
      for (std::uint32_t low = 0; low < 0x10000; ++low) {
        const std::uint32_t bits = (high | sign) << 16 | low;
        const auto master = std::bit_cast<float>(bits);
        const SplitWeight split = split_weight(master);
        const float joined = join_weight(split.rounded, split.remainder);
        if (std::isnan(master)) {
          ASSERT_TRUE(std::isnan(static_cast<float>(split.rounded)) && std::isnan(joined)) << bits;
          continue;
        }
        ASSERT_EQ(std::bit_cast<std::uint32_t>(joined), bits);
        if (low == 0x8000)  // a tie: the farther one from zero
          ASSERT_EQ(split.rounded.bits, (bits >> 16) + 1);
        else
          ASSERT_EQ(split.rounded.bits, bf16(master).bits) << bits;
      }
}

TEST(MasterWeights, VectorsSplitAsSingleWeightsDo) {
  using namespace kernels;
  for (const std::uint32_t high : kHighs)
    for (const std::uint32_t low : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      const auto master = std::bit_cast<float>(high << 16 | low);
      const SplitWeight one = split_weight(master);
      Remainder remainder[kLanes<float>];
      bf16 rounded[kLanes<float>];
      const SplitMasterWeights all{remainder, rounded};
      store(all, splat(master), Full{});
      EXPECT_EQ(rounded[0].bits, one.rounded.bits);
      const float joined = load(all, Full{})[0];
      EXPECT_TRUE(joined == master || (std::isnan(joined) && std::isnan(master)));
    }
}

TEST(MasterWeights, PointersMoveByElements) {
  Remainder remainder[3];
  bf16 rounded[3];
  const SplitMasterWeights all{remainder, rounded};
  for (int i = 0; i < 3; ++i) all.set(i, 1 + static_cast<float>(i) * 0x1p-20f);
  EXPECT_EQ((all + 1)[1], 1 + 0x1p-19f);
  EXPECT_EQ(static_cast<float>(rounded[2]), 1);
}

}  // namespace
}  // namespace tfm
