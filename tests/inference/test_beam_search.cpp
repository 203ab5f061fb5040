#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "inference/beam_search.h"

namespace tfm {
namespace {

constexpr std::int32_t kVocabularyOfSearch = 4, kEndOfText = 0, kBeginOfText = 3;
using Ids = std::vector<std::int32_t>;

// Logits that depend on all ids before.
std::vector<double> logits_after(const Ids& ids, unsigned seed) {
  for (const std::int32_t id : ids) seed = seed * 31 + static_cast<unsigned>(id) + 1;
  std::mt19937 random(seed);
  std::vector<double> x;
  for (int i = 0; i < kVocabularyOfSearch; ++i)
    x.push_back(static_cast<double>(random() % 1000) / 200);
  return x;
}

std::vector<double> log_probabilities(const Ids& ids, unsigned seed) {
  std::vector<double> x = logits_after(ids, seed);
  double sum = 0;
  for (const double v : x) sum += std::exp(v);
  for (double& v : x) v -= std::log(sum);
  return x;
}

struct Result {
  Ids ids;
  double score;
  int steps;
};

Result search(const inference::BeamOptions& options, unsigned seed) {
  inference::BeamSearch s(options, kBeginOfText);
  std::vector<Ids> beams(static_cast<std::size_t>(options.beams));
  int steps = 0;
  for (; !s.done(); ++steps) {
    std::vector<Ids> next;
    std::vector<double> logits;
    for (std::size_t b = 0; b < beams.size(); ++b) {
      next.push_back(beams[static_cast<std::size_t>(s.parents()[b])]);
      if (steps > 0)
        next.back().push_back(s.ids()[b]);
      else
        EXPECT_EQ(s.ids()[b], kBeginOfText);
      const auto row = logits_after(next.back(), seed);
      logits.insert(logits.end(), row.begin(), row.end());
    }
    beams = next;
    s.advance(logits);
  }
  return {s.best(), s.score(), steps};
}

// The best of all sequences of at most max_tokens.
Result exhaustive(const inference::BeamOptions& o, unsigned seed) {
  Result best{{}, -1e9, 0};
  const auto consider = [&](const Ids& ids, double sum, std::size_t tokens) {
    const double score = sum / std::pow(static_cast<double>(tokens), o.length_penalty);
    if (score > best.score) best = {ids, score, 0};
  };
  const std::function<void(Ids, double)> visit = [&](const Ids& ids, double sum) {
    const auto p = log_probabilities(ids, seed);
    for (std::int32_t id = 0; id < kVocabularyOfSearch; ++id) {
      const double total = sum + p[static_cast<std::size_t>(id)];
      if (std::ranges::count(o.banned, id)) continue;
      if (id == kEndOfText || std::ranges::count(o.other_ends, id)) {
        consider(ids, total, ids.size() + 1);
        continue;
      }
      Ids longer = ids;
      longer.push_back(id);
      if (std::ssize(longer) == o.max_tokens)
        consider(longer, total, longer.size());
      else
        visit(longer, total);
    }
  };
  visit({}, 0);
  return best;
}

TEST(BeamSearch, WideEnoughFindsTheBest) {
  for (unsigned seed = 0; seed < 40; ++seed)
    for (const double penalty : {0.0, 0.6, 1.0, 2.0})
      for (const auto& [ends, banned] :
           {std::pair{Ids{}, Ids{}}, {{2}, {}}, {{}, {1}}, {{1}, {3}}}) {
        const inference::BeamOptions o{.beams = 300,
                                       .length_penalty = penalty,
                                       .end = kEndOfText,
                                       .other_ends = ends,
                                       .banned = banned,
                                       .max_tokens = 5};
        const Result found = search(o, seed), best = exhaustive(o, seed);
        EXPECT_EQ(found.ids, best.ids) << seed << " " << penalty;
        EXPECT_NEAR(found.score, best.score, 1e-12);
      }
}

TEST(BeamSearch, StopsWhenNoBeamCanWin) {
  int early = 0;
  for (unsigned seed = 0; seed < 100; ++seed)
    early += search({.beams = 3, .end = kEndOfText, .max_tokens = 20}, seed).steps < 20;
  EXPECT_GT(early, 50);
}

TEST(BeamSearch, OneBeamIsGreedy) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    Ids ids;
    while (ids.size() < 6) {
      const auto x = logits_after(ids, seed);
      const auto top = static_cast<std::int32_t>(std::max_element(x.begin(), x.end()) - x.begin());
      if (top == kEndOfText) break;
      ids.push_back(top);
    }
    EXPECT_EQ(search({.beams = 1, .end = kEndOfText, .max_tokens = 6}, seed).ids, ids);
  }
}

TEST(BeamSearch, EqualOnesGoByBeamThenId) {
  inference::BeamSearch s({.beams = 2, .end = kEndOfText, .max_tokens = 3}, kBeginOfText);
  s.advance(std::vector<double>{-9, 1, 1, 1, 0, 0, 0, 0});
  EXPECT_EQ(s.ids()[0], 1);
  EXPECT_EQ(s.ids()[1], 2);
  s.advance(std::vector<double>{-9, 1, 1, 1, -9, 1, 1, 1});
  EXPECT_EQ(s.parents()[0], 0);
  EXPECT_EQ(s.parents()[1], 0);
  EXPECT_EQ(s.ids()[1], 2);
}

TEST(BeamSearch, MovesNoBeamWhereItIsOver) {
  inference::BeamSearch s({.beams = 2, .end = kEndOfText, .max_tokens = 1}, kBeginOfText);
  s.advance(std::vector<double>{-9, 1, 1, 1, 0, 0, 0, 0});
  ASSERT_TRUE(s.done());
  EXPECT_EQ(s.parents()[0], 0);
  EXPECT_EQ(s.parents()[1], 1) << "though both continue the first";
  EXPECT_EQ(s.best(), Ids{1});
}

TEST(BeamSearch, HasBeamsLeftWhereSeveralEndsComeFirst) {
  inference::BeamSearch s({.beams = 2,
                           .length_penalty = 2,
                           .end = kEndOfText,
                           .other_ends = {1, 2, 3},
                           .max_tokens = 2},
                          kBeginOfText);
  const std::vector<double> ends_first{5, 5, 5, 5, 1, 0}, one_end{0, 0, 9, 0, 0, 0};
  const auto both = [](std::vector<double> row) {
    row.insert(row.end(), row.begin(), row.end());
    return row;
  };
  s.advance(both(ends_first));
  ASSERT_FALSE(s.done());
  EXPECT_EQ(s.ids()[0], 4);
  EXPECT_EQ(s.ids()[1], 5);
  s.advance(both(one_end));
  EXPECT_EQ(s.best(), Ids{4});
}

TEST(BeamSearch, AnEndBehindTheBeamsFinishesNothing) {
  const inference::BeamOptions two{.beams = 2, .end = kEndOfText, .max_tokens = 9};
  inference::BeamSearch third(two, kBeginOfText), second(two, kBeginOfText);
  third.advance(std::vector<double>{3, 5, 4, 0, 0, 0, 0, 0});
  EXPECT_EQ(third.score(), -std::numeric_limits<double>::infinity());
  second.advance(std::vector<double>{4, 5, 3, 0, 0, 0, 0, 0});
  EXPECT_NEAR(second.score(), 4 - std::log(std::exp(4) + std::exp(5) + std::exp(3) + 1), 1e-12);
  EXPECT_TRUE(second.best().empty());
  EXPECT_FALSE(second.done());
}

// The means of one and of several log-probabilities of one half are equal.
TEST(BeamSearch, OfEqualScoresTheFirstStays) {
  for (const std::int64_t beams : {1, 2, 3}) {
    inference::BeamSearch s({.beams = beams, .end = kEndOfText, .max_tokens = 4}, kBeginOfText);
    while (!s.done()) s.advance(std::vector<double>(static_cast<std::size_t>(2 * beams), 0.0));
    EXPECT_TRUE(s.best().empty()) << beams;
    EXPECT_NEAR(s.score(), -std::log(2.0), 1e-12);
    for (std::int64_t b = 0; b < beams; ++b)
      EXPECT_EQ(s.parents()[static_cast<std::size_t>(b)], b) << "where it is over, none moves";
  }
}

TEST(BeamSearch, OfNoTokensIsOver) {
  inference::BeamSearch s({.beams = 2, .end = kEndOfText, .max_tokens = 0}, kBeginOfText);
  EXPECT_TRUE(s.done());
  s.advance(std::vector<double>(8, NAN));
  EXPECT_TRUE(s.best().empty());
}

// A long hypothesis wins by its length where the penalty is strong, so that a search goes on until
// none can.
TEST(BeamSearch, GoesOnWhileALongerOneMayWin) {
  const auto steps = [](double penalty) {
    inference::BeamSearch s(
        {.beams = 2, .length_penalty = penalty, .end = kEndOfText, .max_tokens = 6}, kBeginOfText);
    int n = 0;
    for (; !s.done(); ++n) s.advance(std::vector<double>{1, 0, 1, 0});
    return std::pair(n, s.best().size());
  };
  EXPECT_EQ(steps(0), std::pair(1, std::size_t{0}));
  EXPECT_EQ(steps(3), std::pair(6, std::size_t{5}));
}

TEST(BeamSearch, RefusesNumbersThatAreNotFinite) {
  inference::BeamSearch s({.beams = 1, .end = kEndOfText, .max_tokens = 3}, kBeginOfText);
  EXPECT_THROW(s.advance(std::vector<double>{0, NAN, 0, 0}), std::runtime_error);
}

}  // namespace
}  // namespace tfm
