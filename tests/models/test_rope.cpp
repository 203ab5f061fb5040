// Frequencies of rotary embeddings against the equations of their papers.
#include <gtest/gtest.h>

#include <cmath>

#include "models/rope.h"

namespace tfm {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr std::int64_t kColumns = 8;

config::LayerConfig layer_of(config::RopeScalingType type, double factor) {
  config::LayerConfig layer;
  layer.position = config::Position::rope;
  layer.rope.theta = 10000;
  layer.rope.scaling.type = type;
  layer.rope.scaling.factor = factor;
  layer.rope.scaling.original_max_seq_len = 1000;
  return layer;
}
nn::Rotary rotary(const config::LayerConfig& layer, const config::LongRopeConfig& longer = {}) {
  return models::rotary_of(layer, longer, kColumns);
}

// theta^(-2 i / 8) of 10000: 1, 0.1, 0.01, 0.001.
TEST(Rope, ScalingsChangeFrequencies) {
  using enum config::RopeScalingType;
  const auto expect = [](const std::vector<double>& found, const std::vector<double>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], 1e-12 * expected[i]) << i;
  };
  config::LayerConfig none = layer_of(linear, 0);
  none.rope.scaling = {};
  expect(rotary(none).frequency, {1, 0.1, 0.01, 0.001});
  EXPECT_EQ(rotary(none).factor, 1);
  none.position = config::Position::learned;
  EXPECT_TRUE(rotary(none).frequency.empty());
  expect(rotary(layer_of(linear, 4)).frequency, {0.25, 0.025, 0.0025, 0.00025});
  // theta * 4^(8 / 6).
  const double base = 10000 * std::pow(4, 4.0 / 3);
  expect(rotary(layer_of(ntk, 4)).frequency,
         {1, std::pow(base, -0.25), std::pow(base, -0.5), std::pow(base, -0.75)});
  // 1000 positions have 159, 15.9, 1.59 and 0.159 turns: from 4 on they stay, below 1 a factor of
  // 8 slows them, and between a share of (turns - 1) / 3 stays.
  config::LayerConfig llama = layer_of(llama3, 8);
  llama.rope.scaling.low_freq_factor = 1, llama.rope.scaling.high_freq_factor = 4;
  const double stays = (1000 * 0.01 / (2 * kPi) - 1) / 3;
  expect(rotary(llama).frequency, {1, 0.1, 0.01 * (stays + (1 - stays) / 8), 0.001 / 8});
  EXPECT_EQ(rotary(llama).factor, 1);
}

// Index of so many turns: 8 ln(1000 / (2 pi turns)) / (2 ln 10000).
TEST(Rope, YarnJoinsThemByARamp) {
  config::LayerConfig layer = layer_of(config::RopeScalingType::yarn, 4);
  config::RopeScaling& s = layer.rope.scaling;
  s.beta_fast = 32, s.beta_slow = 1, s.truncate = false;
  const auto index = [](double turns) {
    return 8 * std::log(1000 / (2 * kPi * turns)) / (2 * std::log(10000.0));
  };
  const double low = index(32), high = index(1);
  for (const bool truncate : {false, true}) {
    s.truncate = truncate;
    const double from = truncate ? std::floor(low) : low, to = truncate ? std::ceil(high) : high;
    const nn::Rotary r = rotary(layer);
    for (std::size_t i = 0; i < 4; ++i) {
      const double slowed =
          std::min(1.0, std::max(0.0, (static_cast<double>(i) - from) / (to - from)));
      EXPECT_NEAR(r.frequency[i] * std::pow(10, static_cast<double>(i)), 1 - slowed * (1 - 1.0 / 4),
                  1e-12)
          << i;
    }
    EXPECT_NEAR(r.factor, 1 + 0.1 * std::log(4), 1e-12);
  }
  s.mscale = 0.5, s.mscale_all_dim = 2;
  EXPECT_NEAR(rotary(layer).factor, (1 + 0.05 * std::log(4)) / (1 + 0.2 * std::log(4)), 1e-12);
  EXPECT_NEAR(models::latent_score_factor(layer.rope), std::pow(1 + 0.2 * std::log(4), 2), 1e-12);
  s.mscale = 0;
  EXPECT_NEAR(rotary(layer).factor, 1 + 0.1 * std::log(4), 1e-12) << "of both or of none";
  s.mscale = 0.5, s.mscale_all_dim = 0;
  EXPECT_NEAR(rotary(layer).factor, 1 + 0.1 * std::log(4), 1e-12) << "of both or of none";
  EXPECT_EQ(models::latent_score_factor(layer.rope), 1);
  s.attention_factor = 1.5;
  EXPECT_EQ(rotary(layer).factor, 1.5);
}

TEST(Rope, LongRopeHasTwoLists) {
  config::LayerConfig layer = layer_of(config::RopeScalingType::longrope, 4);
  config::LongRopeConfig lists;
  lists.short_factor = {1, 2, 4, 5}, lists.long_factor = {2, 5, 10, 20};
  const nn::Rotary r = rotary(layer, lists);
  const std::vector<double> brief{1, 0.05, 0.0025, 0.0002}, longer{0.5, 0.02, 0.001, 0.00005};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(r.frequency.at(i), brief[i], 1e-12);
    EXPECT_NEAR(r.long_frequency.at(i), longer[i], 1e-12);
  }
  EXPECT_EQ(r.original_length, 1000);
  EXPECT_NEAR(r.factor, std::sqrt(1 + std::log(4) / std::log(1000)), 1e-12);
  layer.rope.scaling.factor = 1;
  layer.rope.scaling.attention_factor = 0;
  EXPECT_EQ(rotary(layer, lists).factor, 1);
  layer.rope.scaling.attention_factor = 1.25;
  EXPECT_EQ(rotary(layer, lists).factor, 1.25);
}

}  // namespace
}  // namespace tfm
