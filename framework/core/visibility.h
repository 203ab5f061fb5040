#pragma once
// Which keys a query of attention sees, by their positions in a sequence. What is asked about
// ranges of queries and keys takes the same few operations for any length, on CPUs and GPUs.
#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace tfm {

// Positions [begin, end).
template <class Int>
struct Span {
  Int begin = 0, end = 0;
  constexpr Int size() const { return end - begin; }
  bool operator==(const Span&) const = default;
};

// What a range of queries sees of a range of keys: no query sees a key, every query sees every key,
// or something between. Of several conditions that all must hold, the least decides.
enum class Seen : std::uint8_t { none, part, whole };

// The query at position q sees the keys at positions q - left to q + right, both included.
// Differences of positions are smaller than half of kUnlimited, so that 32 bits hold every sum.
template <class Int>
struct BasicVisibility {
  static constexpr Int kUnlimited = Int{1} << 30;
  Int left = kUnlimited, right = kUnlimited;  // -left <= right

  // A query sees itself and what is before it.
  static constexpr BasicVisibility causal() { return {.right = 0}; }
  bool operator==(const BasicVisibility&) const = default;
  template <class To>
  constexpr BasicVisibility<To> as() const {
    return {static_cast<To>(left), static_cast<To>(right)};
  }

  constexpr bool sees(Int query, Int key) const {
    using Unsigned = std::make_unsigned_t<Int>;  // one comparison: keys before the first are large
    return static_cast<Unsigned>(key - query + left) <=
           static_cast<Unsigned>(left) + static_cast<Unsigned>(right);
  }
  // Whether the queries see all, some or none of the keys; `none` if there are none of either.
  constexpr Seen seen(Span<Int> queries, Span<Int> keys) const {
    const Int least = keys.begin - (queries.end - 1), most = keys.end - 1 - queries.begin;
    if (queries.size() <= 0 || keys.size() <= 0 || least > right || -most > left) return Seen::none;
    return most <= right && -least <= left ? Seen::whole : Seen::part;
  }
  // From the first to the last of the keys that any of the queries, at least one, sees.
  constexpr Span<Int> keys_of(Span<Int> queries, Span<Int> keys) const {
    return {between(queries.begin - left, keys), between(queries.end + right, keys)};
  }
  // From the first to the last of the queries that see any of the keys, at least one.
  constexpr Span<Int> queries_of(Span<Int> keys, Span<Int> queries) const {
    return BasicVisibility{right, left}.keys_of(keys, queries);
  }
  // Number of pairs of a query and a key that it sees.
  constexpr Int pairs(Span<Int> queries, Span<Int> keys) const requires(sizeof(Int) == 8) {
    const Int n = keys.size();
    // The sum of min(max(i, 0), n) over i < x: i keys are at or before the i-th position.
    const auto sum = [n](Int x) {
      const Int m = between(x, {0, n});
      return m * (m - 1) / 2 + (std::max(x, n) - n) * n;
    };
    // Pairs whose key is at most so far behind the query.
    const auto within = [&](Int reach) {
      const Int first = queries.begin + reach + 1 - keys.begin;
      return sum(first + queries.size()) - sum(first);
    };
    return within(right) - within(-left - 1);
  }

  // The same by index, of queries from position `query` on and keys from position `key` on.
  constexpr BasicVisibility from(Int query, Int key) const {
    return {left == kUnlimited ? left : left - (query - key),
            right == kUnlimited ? right : right + (query - key)};
  }

 private:
  static constexpr Int between(Int x, Span<Int> range) {
    return std::min(std::max(x, range.begin), range.end);
  }
};
using Visibility = BasicVisibility<std::int64_t>;

}  // namespace tfm
