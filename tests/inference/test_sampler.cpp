// What a decoder draws: shares of many draws against the probabilities, worked out by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "core/error.h"
#include "inference/sampler.h"

namespace tfm {
namespace {

using inference::Sampler;
using inference::SamplerOptions;

constexpr int kDraws = 40000;

std::vector<double> logits_of(const std::vector<double>& probabilities) {
  std::vector<double> all;
  for (const double p : probabilities) all.push_back(std::log(p) + 3);  // any constant
  return all;
}

// Ids 1, 3, 0, 2 from the most to the least likely.
const std::vector<double> kLogits = logits_of({0.15, 0.5, 0.05, 0.3});

std::vector<std::int32_t> ids_of(const Sampler& sampler, const std::vector<double>& logits) {
  std::vector<std::int32_t> ids;
  for (const Sampler::Candidate& c : sampler.candidates(logits)) ids.push_back(c.id);
  return ids;
}

// `expected`: probability of each id; draws are within five standard deviations of it, and never
// one that has none.
void expect_shares(SamplerOptions options, const std::vector<double>& logits,
                   const std::vector<double>& expected) {
  Sampler sampler(options);
  std::vector<int> drawn(logits.size());
  for (int i = 0; i < kDraws; ++i) ++drawn[static_cast<std::size_t>(sampler.next(logits))];
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const double p = expected[id];
    EXPECT_NEAR(static_cast<double>(drawn[id]) / kDraws, p, 5 * std::sqrt(p * (1 - p) / kDraws))
        << "id " << id << ", temperature " << options.temperature << ", top-k " << options.top_k
        << ", top-p " << options.top_p;
  }
}

TEST(Sampler, DrawsByProbability) {
  expect_shares({}, kLogits, {0.15, 0.5, 0.05, 0.3});
  expect_shares({.seed = 7}, kLogits, {0.15, 0.5, 0.05, 0.3});
  expect_shares({}, std::vector<double>(8, -2.0), std::vector<double>(8, 0.125));
}

// Probabilities to the power of 1 / temperature, normalized.
TEST(Sampler, TemperatureDividesLogits) {
  const double sum = 0.15 * 0.15 + 0.5 * 0.5 + 0.05 * 0.05 + 0.3 * 0.3;
  expect_shares({.temperature = 0.5}, kLogits,
                {0.0225 / sum, 0.25 / sum, 0.0025 / sum, 0.09 / sum});
  const std::vector<double> ninth = logits_of({0.81, 0.09, 0.09, 0.01});
  expect_shares({.temperature = 2}, ninth, {9.0 / 16, 3.0 / 16, 3.0 / 16, 1.0 / 16});
}

TEST(Sampler, TemperatureZeroTakesTheMostLikely) {
  Sampler sampler({.temperature = 0, .top_k = 3, .top_p = 0.9});
  for (int i = 0; i < 100; ++i) EXPECT_EQ(sampler.next(kLogits), 1);
  EXPECT_EQ(sampler.next(std::vector<double>{1, 5, 5, 5}), 1) << "of equal ones the first";
}

TEST(Sampler, TopKKeepsThatMany) {
  EXPECT_EQ(ids_of(Sampler({.top_k = 1}), kLogits), (std::vector<std::int32_t>{1}));
  EXPECT_EQ(ids_of(Sampler({.top_k = 3}), kLogits), (std::vector<std::int32_t>{1, 3, 0}));
  for (const int all : {0, 4, 5, 1000})
    EXPECT_EQ(ids_of(Sampler({.top_k = all}), kLogits), (std::vector<std::int32_t>{1, 3, 0, 2}));
  EXPECT_EQ(ids_of(Sampler({.top_k = 2}), std::vector<double>{1, 2, 2, 2}),
            (std::vector<std::int32_t>{1, 2}))
      << "of equal ones the first";
  expect_shares({.top_k = 2}, kLogits, {0, 5.0 / 8, 0, 3.0 / 8});
}

// The token that crosses the boundary is the last one that can be drawn.
TEST(Sampler, TopPKeepsTheTokenThatCrossesTheBoundary) {
  const std::vector<std::int32_t> one{1}, two{1, 3}, three{1, 3, 0}, four{1, 3, 0, 2};
  const std::vector<std::pair<double, std::vector<std::int32_t>>> cases{
      {1e-9, one},    {0.3, one},     {0.499, one},  {0.501, two}, {0.799, two},
      {0.801, three}, {0.949, three}, {0.951, four}, {1, four}};
  for (const auto& [share, ids] : cases)
    EXPECT_EQ(ids_of(Sampler({.top_p = share}), kLogits), ids) << share;
  expect_shares({.top_p = 0.6}, kLogits, {0, 5.0 / 8, 0, 3.0 / 8});
  expect_shares({.top_p = 0.85}, kLogits, {3.0 / 19, 10.0 / 19, 0, 6.0 / 19});
  // Exact sums: 1/2 is reached by the first of two, not crossed.
  EXPECT_EQ(ids_of(Sampler({.top_p = 0.5}), std::vector<double>{0, 0}),
            (std::vector<std::int32_t>{0}));
}

// The share is of what top-k and the temperature leave.
TEST(Sampler, TopPFollowsTopKAndTemperature) {
  EXPECT_EQ(ids_of(Sampler({.top_k = 2, .top_p = 0.62}), kLogits), (std::vector<std::int32_t>{1}))
      << "0.5 of 0.8 is 0.625";
  EXPECT_EQ(ids_of(Sampler({.top_k = 2, .top_p = 0.63}), kLogits),
            (std::vector<std::int32_t>{1, 3}));
  EXPECT_EQ(ids_of(Sampler({.temperature = 0.5, .top_p = 0.68}), kLogits),
            (std::vector<std::int32_t>{1}))
      << "0.25 of 0.365 is 0.685";
}

// Neighboring draws are independent: all pairs of four equally likely tokens come equally often.
TEST(Sampler, EveryDrawHasANumberOfItsOwn) {
  const std::vector<double> even(4, 0.0);
  Sampler sampler({});
  std::map<std::pair<int, int>, int> pairs;
  int before = sampler.next(even);
  for (int i = 0; i < kDraws; ++i) {
    const int now = sampler.next(even);
    ++pairs[{before, now}];
    before = now;
  }
  ASSERT_EQ(pairs.size(), 16u);
  const double p = 1.0 / 16;
  for (const auto& [pair, count] : pairs)
    EXPECT_NEAR(static_cast<double>(count) / kDraws, p, 6 * std::sqrt(p * (1 - p) / kDraws))
        << pair.first << " " << pair.second;
}

std::vector<std::int32_t> drawn(std::uint64_t seed, int n) {
  Sampler sampler({.seed = seed});
  std::vector<std::int32_t> ids;
  for (int i = 0; i < n; ++i) ids.push_back(sampler.next(std::vector<double>(100, 0.0)));
  return ids;
}

TEST(Sampler, ASeedRepeatsItsDraws) {
  EXPECT_EQ(drawn(5, 50), drawn(5, 50));
  for (const std::uint64_t other : {std::uint64_t{6}, std::uint64_t{5} << 32}) {
    int equal = 0;
    const auto a = drawn(5, 200), b = drawn(other, 200);
    for (std::size_t i = 0; i < a.size(); ++i) equal += a[i] == b[i];
    EXPECT_LT(equal, 15) << "about one in a hundred";
  }
  const Sampler pure({.seed = 5});
  const auto ids = drawn(5, 10);
  for (std::uint32_t n : {9u, 0u, 4u, 4u})
    EXPECT_EQ(pure.pick(std::vector<double>(100, 0.0), n), ids[n]);
}

TEST(Sampler, RefusesLogitsThatAreNotFinite) {
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               inf = std::numeric_limits<double>::infinity();
  for (const double temperature : {0.0, 1.0})
    for (const std::vector<double>& logits : {std::vector{nan, nan}, std::vector{1.0, nan, 2.0},
                                              std::vector{nan, 1.0}, std::vector{inf, 1.0}})
      try {
        Sampler({.temperature = temperature}).next(logits);
        ADD_FAILURE() << temperature << " " << testing::PrintToString(logits);
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ExitCode::numerical);
      }
}

TEST(Sampler, RefusesWhatIsOutOfRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const SamplerOptions& o :
       {SamplerOptions{.temperature = -1}, SamplerOptions{.temperature = nan},
        SamplerOptions{.top_k = -1}, SamplerOptions{.top_p = 0}, SamplerOptions{.top_p = 1.5},
        SamplerOptions{.top_p = nan}})
    try {
      const Sampler sampler(o);
      ADD_FAILURE() << o.temperature << " " << o.top_k << " " << o.top_p;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::usage);
    }
}

}  // namespace
}  // namespace tfm
