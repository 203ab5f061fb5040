// Visibility's answers for ranges against every pair of a query and a key.
#include <gtest/gtest.h>

#include <set>

#include "core/visibility.h"

namespace tfm::test {
namespace {

using Range = Span<std::int64_t>;
constexpr std::int64_t kAll = Visibility::kUnlimited;

std::vector<Visibility> visibilities() {
  return {{},      Visibility::causal(), {0, 0},  {0, kAll}, {2, 0},    {1, 3},
          {3, 3},  {kAll, -2},           {-1, 4}, {4, -1},   {kAll, 3}, {5, kAll},
          {12, 12}};
}

// Every range of positions from `first` on, empty ones too.
std::vector<Range> ranges(std::int64_t first, std::int64_t last) {
  std::vector<Range> all;
  for (std::int64_t begin = first; begin <= last; ++begin)
    for (std::int64_t end = begin; end <= last; ++end) all.push_back({begin, end});
  return all;
}

// What is seen beyond windows, in sequences of so many positions.
constexpr std::int64_t kPositions = 23;
std::vector<Visibility> with_landmarks() {
  std::vector<Visibility> all;
  for (const bool causal : {false, true})
    for (const std::int64_t first : {0, 1, 9})
      for (const std::int64_t random : {0, 1, 3}) {
        const std::int64_t right = causal ? 0 : 1;
        if (first > 0 && random == 0)
          all.push_back({2, causal ? 0 : 3, {.causal = causal, .first = first}});
        for (const std::int64_t block : {2, 5})
          all.push_back({1,
                         right,
                         {.causal = causal,
                          .first = std::max(block, first),
                          .block = block,
                          .random = random,
                          .key = {7, Purpose::init, 3}}});
      }
  for (const bool causal : {false, true})
    for (const std::int64_t first : {0, 4})
      for (const std::int64_t step : {1, 2, 5, 30})
        for (const std::int64_t steps : {std::int64_t{1}, std::int64_t{3}, kAll})
          all.push_back({first == 0 ? 2 : 0,
                         causal ? 0 : 1,
                         {.causal = causal, .first = first, .step = step, .steps = steps}});
  for (Visibility v :
       {Visibility{}, {1, 1, {.first = 3}}, {1, 1, {.first = 3, .step = 4, .steps = 2}}}) {
    v.beyond.from = v.beyond.first, all.push_back(v);
    v.beyond.from = 0, v.beyond.to = 5, all.push_back(v);
  }
  for (const std::int64_t left : {3, 40})
    for (const std::int64_t prefix : {1, 9, 40}) all.push_back({left, 0, {.prefix = prefix}});
  for (Visibility& v : all) v = v.of_length(kPositions);
  return all;
}

// By the definitions of the papers, from the random blocks alone.
bool by_definition(const Visibility& v, std::int64_t q, std::int64_t k) {
  const BasicLandmarks<std::int64_t>& l = v.beyond;
  if (l.any() && ((l.causal && k > q) || q < l.from || q >= l.to)) return false;
  if ((v.left == kAll || k >= q - v.left) && (v.right == kAll || k <= q + v.right)) return true;
  if (!l.any()) return false;
  if (q < l.prefix && k < l.prefix) return true;
  if (q < l.first || k < l.first) return true;
  const std::int64_t distance = std::abs(q - k);
  if (l.step > 0) return distance % l.step == 0 && distance <= l.steps * l.step;
  if (l.block == 0) return false;
  const std::int64_t query = q / l.block, key = k / l.block,
                     last = l.causal ? kAll : (kPositions - 1) / l.block;
  if (query == last || key == last || std::abs(query - key) <= 1) return true;
  for (std::int64_t i = 0; i < l.random; ++i)
    if (l.drawn(query, i) == key) return true;
  return false;
}

// What `v` says of the ranges, and what its pairs do.
void expect_right(const Visibility& v, Range queries, Range keys) {
  const bool landmarks = v.beyond.any();
  std::int64_t pairs = 0, first_key = keys.end, end_key = keys.begin, first_query = queries.end,
               end_query = queries.begin;
  std::vector<bool> seen_keys(static_cast<std::size_t>(keys.size()));
  for (std::int64_t q = queries.begin; q < queries.end; ++q)
    for (std::int64_t k = keys.begin; k < keys.end; ++k) {
      const bool sees = by_definition(v, q, k);
      ASSERT_EQ(v.sees(q, k), sees);
      if (!sees) continue;
      seen_keys[static_cast<std::size_t>(k - keys.begin)] = true;
      ++pairs;
      first_key = std::min(first_key, k), end_key = std::max(end_key, k + 1);
      first_query = std::min(first_query, q), end_query = std::max(end_query, q + 1);
    }
  const std::int64_t all = queries.size() * keys.size();
  ASSERT_EQ(v.pairs(queries, keys), pairs);
  const Seen seen_pairs = pairs == 0 ? Seen::none : pairs == all ? Seen::whole : Seen::part;
  if (const Seen said = v.seen(queries, keys); said != seen_pairs) {
    ASSERT_TRUE((v.beyond.block > 0 || v.beyond.prefix > 0 || v.beyond.step > 0) &&
                seen_pairs == Seen::whole && said == Seen::part);
  }
  if (all == 0) return;
  const Range seen = v.keys_of(queries, keys), seeing = v.queries_of(keys, queries);
  for (Range rest = keys; landmarks;) {
    const Range run = v.first_keys(queries, rest);
    for (std::int64_t k = rest.begin; k < run.end; ++k)
      ASSERT_EQ(seen_keys[static_cast<std::size_t>(k - keys.begin)], k >= run.begin);
    if (run.end == keys.end) break;
    ASSERT_FALSE(seen_keys[static_cast<std::size_t>(run.end - keys.begin)]);
    rest.begin = run.end;
  }
  if (pairs == 0) {
    ASSERT_EQ(seen.size(), 0);
    ASSERT_EQ(seeing.size(), 0);
  } else {
    ASSERT_EQ(seen, (Range{first_key, end_key}));
    ASSERT_EQ(seeing, (Range{first_query, end_query}));
  }
}

TEST(Visibility, RangesSayWhatTheirPairsDo) {
  for (const Visibility& v : visibilities())
    for (const Range& queries : ranges(-2, 7))
      for (const Range& keys : ranges(-3, 8)) {
        SCOPED_TRACE(testing::Message()
                     << v.left << " to " << v.right << ": " << queries.begin << "-" << queries.end
                     << " and " << keys.begin << "-" << keys.end);
        expect_right(v, queries, keys);
        if (HasFatalFailure()) return;
      }
}

TEST(Visibility, RangesSayWhatTheirPairsDoBeyondWindows) {
  for (const Visibility& v : with_landmarks())
    for (std::int64_t q = 0; q < kPositions; q += 3)
      for (const std::int64_t queries : {1, 7})
        for (const Range& keys : ranges(0, kPositions)) {
          SCOPED_TRACE(testing::Message()
                       << "first " << v.beyond.first << " step " << v.beyond.step << " block "
                       << v.beyond.block << " random " << v.beyond.random << " causal "
                       << v.beyond.causal << ": " << q << " and " << queries << ", " << keys.begin
                       << "-" << keys.end);
          expect_right(v, {q, std::min(kPositions, q + queries)}, keys);
          if (HasFatalFailure()) return;
        }
}

// The first of the queries from one on that see any of the keys, as GPUs ask for it.
TEST(Visibility, TheNextQueryIsFound) {
  for (const Visibility& v : with_landmarks())
    for (const Range& keys : ranges(0, kPositions)) {
      if (keys.size() == 0) continue;
      for (std::int64_t q = 0; q < kPositions; ++q) {
        const Range rest = v.queries_of(keys, {q, kPositions});
        ASSERT_EQ(rest.size() > 0 && rest.begin == q, v.keys_of({q, q + 1}, keys).size() > 0);
      }
    }
}

// Each draws as many others as it may, alike on every rank and whatever follows if it is causal.
TEST(Visibility, RandomBlocks) {
  for (const bool causal : {false, true}) {
    const Visibility v{
        1, causal ? 0 : 1, {.causal = causal, .first = 4, .block = 4, .random = 3, .key = {5}}};
    const auto l = v.of_length(80).beyond, longer = v.of_length(160).beyond;
    std::set<std::int64_t> drawn;
    for (std::int64_t q = 1; q < 19; ++q) {
      std::set<std::int64_t> others;
      for (std::int64_t i = 0; i < 3; ++i) {
        const std::int64_t k = l.drawn(q, i);
        if (causal) {
          EXPECT_EQ(k, longer.drawn(q, i));
        }
        if (k < 0) continue;
        EXPECT_TRUE(k > 0 && (k < q - 1 || (k > q + 1 && !causal && k < 19)));
        others.insert(k);
      }
      EXPECT_EQ(std::ssize(others), causal ? std::clamp<std::int64_t>(q - 2, 0, 3) : 3);
      drawn.merge(others);
    }
    EXPECT_GT(drawn.size(), 9U);
  }
}

// By indices of ranges that begin anywhere, also in 32 bits.
TEST(Visibility, ByIndexIsByPosition) {
  for (const Visibility& v : visibilities())
    for (std::int64_t query : {-5, 0, 3})
      for (std::int64_t key : {-4, 0, 6}) {
        const Visibility by_index = v.from(query, key);
        const auto narrow = by_index.as<int>();
        for (std::int64_t t = 0; t < 9; ++t)
          for (std::int64_t s = 0; s < 9; ++s) {
            ASSERT_EQ(by_index.sees(t, s), v.sees(query + t, key + s));
            ASSERT_EQ(narrow.sees(static_cast<int>(t), static_cast<int>(s)),
                      v.sees(query + t, key + s));
          }
      }
  for (const Visibility& v : with_landmarks()) {
    const Visibility by_index = v.from(3, 6);
    const auto narrow = by_index.as<int>();
    for (const Range& queries : ranges(0, 9))
      for (const Range& keys : ranges(0, 9)) {
        const Range q{queries.begin + 3, queries.end + 3}, k{keys.begin + 6, keys.end + 6};
        const auto cast = [](Range r) {
          return Span<int>{static_cast<int>(r.begin), static_cast<int>(r.end)};
        };
        ASSERT_EQ(by_index.seen(queries, keys), v.seen(q, k));
        ASSERT_EQ(narrow.seen(cast(queries), cast(keys)), v.seen(q, k));
        ASSERT_EQ(by_index.pairs(queries, keys), v.pairs(q, k));
      }
  }
}

TEST(Visibility, LongSequences) {
  constexpr std::int64_t kLength = std::int64_t{1} << 28;
  constexpr Range kRange{0, kLength};
  EXPECT_EQ(Visibility{}.pairs(kRange, kRange), kLength * kLength);
  EXPECT_EQ(Visibility::causal().pairs(kRange, kRange), kLength * (kLength + 1) / 2);
  EXPECT_EQ((Visibility{4095, 0}.pairs(kRange, kRange)), kLength * 4096 - 4096 * 4095 / 2);
  const auto narrow = Visibility{}.as<int>();
  constexpr int kEnd = 1 << 28;
  EXPECT_EQ(narrow.seen({0, kEnd}, {0, kEnd}), Seen::whole);
  EXPECT_EQ(narrow.keys_of({kEnd - 1, kEnd}, {0, kEnd}), (Span<int>{0, kEnd}));
}

}  // namespace
}  // namespace tfm::test
