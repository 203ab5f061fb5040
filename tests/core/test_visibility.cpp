// Visibility's answers for ranges against every pair of a query and a key.
#include <gtest/gtest.h>

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

// What `v` says of the ranges, and what its pairs do.
void expect_right(const Visibility& v, Range queries, Range keys) {
  std::int64_t pairs = 0, first_key = keys.end, end_key = keys.begin, first_query = queries.end,
               end_query = queries.begin;
  for (std::int64_t q = queries.begin; q < queries.end; ++q)
    for (std::int64_t k = keys.begin; k < keys.end; ++k) {
      const bool sees =
          (v.left == kAll || k >= q - v.left) && (v.right == kAll || k <= q + v.right);
      ASSERT_EQ(v.sees(q, k), sees);
      if (!sees) continue;
      ++pairs;
      first_key = std::min(first_key, k), end_key = std::max(end_key, k + 1);
      first_query = std::min(first_query, q), end_query = std::max(end_query, q + 1);
    }
  const std::int64_t all = queries.size() * keys.size();
  ASSERT_EQ(v.pairs(queries, keys), pairs);
  ASSERT_EQ(v.seen(queries, keys), pairs == 0     ? Seen::none
                                   : pairs == all ? Seen::whole
                                                  : Seen::part);
  if (all == 0) return;
  const Range seen = v.keys_of(queries, keys), seeing = v.queries_of(keys, queries);
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
