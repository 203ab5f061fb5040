#pragma once
// Which keys a query of attention sees, by their positions in a sequence. What is asked about
// ranges of queries and keys takes the same few operations for any length, on CPUs and GPUs.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/landmarks.h"

namespace tfm {

// What a range of queries sees of a range of keys: no query sees a key, every query sees every key,
// or something between. Of several conditions that all must hold, the least decides.
enum class Seen : std::uint8_t { none, part, whole };

// The query at position q sees the keys at positions q - left to q + right, both included, and
// those that landmarks show it. Differences of positions are smaller than half of kUnlimited, so
// that 32 bits hold every sum. Where there are landmarks, no position is negative.
template <class Int>
struct BasicVisibility {
  static constexpr Int kUnlimited = Int{1} << 30;
  Int left = kUnlimited, right = kUnlimited;  // -left <= right
  // If it has blocks, the window is within a block and those beside it; if causal, right <= 0.
  BasicLandmarks<Int> beyond = {};
  Int query_at = 0, key_at = 0;  // positions of the query and of the key of index 0

  // A query sees itself and what is before it.
  static constexpr BasicVisibility causal() { return {.right = 0}; }
  bool operator==(const BasicVisibility&) const = default;
  template <class To>
  constexpr BasicVisibility<To> as() const {
    return {static_cast<To>(left), static_cast<To>(right), beyond.template as<To>(),
            static_cast<To>(query_at), static_cast<To>(key_at)};
  }
  // That of sequences of so many positions.
  constexpr BasicVisibility of_length(Int positions) const {
    if (beyond.repeats && positions <= beyond.most_seen()) return {};
    return {left, right, beyond.of_length(positions), query_at, key_at};
  }

  // The last so many positions, with its own, hold all that a query sees if it sees nothing behind
  // itself; 0: there is no such number.
  constexpr Int recent() const {
    return beyond.any() || left == kUnlimited || right > 0 ? 0 : left + 1;
  }
  constexpr bool sees(Int query, Int key) const {
    using Unsigned = std::make_unsigned_t<Int>;  // one comparison: keys before the first are large
    const bool near = static_cast<Unsigned>(key - query + left) <=
                      static_cast<Unsigned>(left) + static_cast<Unsigned>(right);
    if (!beyond.any()) return near;
    const Int at = query + query_at;
    return at >= beyond.from && at < beyond.to && (near || beyond.sees(at, key + key_at));
  }
  // Whether the queries see all, some or none of the keys; `none` if there are none of either. What
  // random blocks or a prefix and others only together show as a whole may be said to be a part.
  constexpr Seen seen(Span<Int> queries, Span<Int> keys) const {
    if (queries.size() <= 0 || keys.size() <= 0) return Seen::none;
    if (!beyond.any()) {
      const Int least = keys.begin - (queries.end - 1), most = keys.end - 1 - queries.begin;
      if (least > right || -most > left) return Seen::none;
      return most <= right && -least <= left ? Seen::whole : Seen::part;
    }
    if (keys_of(queries, keys).size() == 0) return Seen::none;
    bool whole = looking(queries) == queries;
    each_part(queries, query_at, [&](Span<Int> q) {
      each_part(keys, key_at, [&](Span<Int> k) { whole = whole && sees_whole(q, k); });
    });
    return whole ? Seen::whole : Seen::part;
  }
  // f(span) for spans, none of them empty, that together are the keys that any of the queries sees,
  // in any order; some may be in several.
  template <class F>
  constexpr void each_of_keys(Span<Int> queries, Span<Int> keys, F&& f) const {
    queries = looking(queries);
    if (queries.size() <= 0) return;
    const auto add = part_of(keys, f);
    add({queries.begin - left, queries.end + right});
    if (beyond.any())
      beyond.each_of_keys(queries + query_at, keys + key_at,
                          [&](Span<Int> s) { add(s + -key_at); });
  }
  // From the first to the last of the keys that any of the queries, at least one, sees.
  constexpr Span<Int> keys_of(Span<Int> queries, Span<Int> keys) const {
    if (!beyond.any()) return keys.part({queries.begin - left, queries.end + right});
    return hull(keys, [&](auto&& f) { each_of_keys(queries, keys, f); });
  }
  // From the first to the last of the queries that see any of the keys, at least one.
  constexpr Span<Int> queries_of(Span<Int> keys, Span<Int> queries) const {
    if (!beyond.any()) return queries.part({keys.begin - right, keys.end + left});
    return hull(queries, [&](auto&& f) { each_of_queries(keys, queries, f); });
  }
  // The first keys side by side that any of the queries sees, all of them; empty if there are none.
  constexpr Span<Int> first_keys(Span<Int> queries, Span<Int> keys) const {
    return first_run(keys, [&](auto&& f) { each_of_keys(queries, keys, f); });
  }
  // Number of pairs of a query and a key that it sees.
  constexpr Int pairs(Span<Int> queries, Span<Int> keys) const requires(sizeof(Int) == 8) {
    if (!beyond.any()) return near_pairs(queries, keys);
    const Int by = query_at - key_at;  // the window is one by index
    Int sum = prefix_pairs(looking(queries), keys);
    each_part(looking(queries), query_at, [&](Span<Int> q) {
      each_part(keys, key_at, [&](Span<Int> k) {
        sum += is_global(q, query_at) || is_global(k, key_at)
                   ? beyond.all_pairs(q + query_at, k + key_at)
                   : beyond.local_pairs(left + by, right - by, q + query_at, k + key_at);
      });
    });
    return sum;
  }

  // The same by index, of queries from position `query` on and keys from position `key` on.
  constexpr BasicVisibility from(Int query, Int key) const {
    const Int by = query - key, any = beyond.any() ? 1 : 0;
    return {left == kUnlimited ? left : left - by, right == kUnlimited ? right : right + by, beyond,
            query_at + any * query, key_at + any * key};
  }

 private:
  // f of what is inside of a range, if anything is.
  template <class F>
  static constexpr auto part_of(Span<Int> range, F& f) {
    return [range, &f](Span<Int> s) {
      if (const Span<Int> inside = range.part(s); inside.size() > 0) f(inside);
    };
  }
  // As each_of_keys() for the queries that see any of the keys.
  template <class F>
  constexpr void each_of_queries(Span<Int> keys, Span<Int> queries, F&& f) const {
    queries = looking(queries);
    if (keys.size() <= 0 || queries.size() <= 0) return;
    const auto add = part_of(queries, f);
    add({keys.begin - right, keys.end + left});
    if (beyond.any())
      beyond.each_of_queries(keys + key_at, queries + query_at,
                             [&](Span<Int> s) { add(s + -query_at); });
  }
  // Those of the queries that may see anything.
  constexpr Span<Int> looking(Span<Int> queries) const {
    if (!beyond.any()) return queries;
    return queries.part({beyond.from - query_at, beyond.to - query_at});
  }
  // f(part) for the parts of a range that are global, and that are not.
  template <class F>
  constexpr void each_part(Span<Int> s, Int zero, F&& f) const {
    const Int first = s.nearest(beyond.first - zero),
              last = s.nearest(std::max(beyond.first, beyond.last) - zero);
    const Span<Int> parts[] = {{s.begin, first}, {first, last}, {last, s.end}};
    for (const Span<Int> part : parts)
      if (part.size() > 0) f(part);
  }
  constexpr bool is_global(Span<Int> part, Int zero) const {
    return beyond.global(part.begin + zero);
  }
  constexpr bool sees_whole(Span<Int> queries, Span<Int> keys) const {
    return (keys.end - 1 - queries.begin <= right && queries.end - 1 - keys.begin <= left) ||
           beyond.see_whole(queries + query_at, keys + key_at);
  }

  // Pairs by the window alone.
  constexpr Int near_pairs(Span<Int> queries, Span<Int> keys) const {
    return pairs_within(left, right, queries, keys);
  }
  // Pairs within the prefix that the window hides.
  constexpr Int prefix_pairs(Span<Int> queries, Span<Int> keys) const {
    const Span<Int> q = queries.part({0, beyond.prefix - query_at}),
                    k = keys.part({0, beyond.prefix - key_at});
    return q.size() > 0 && k.size() > 0 ? q.size() * k.size() - near_pairs(q, k) : 0;
  }
};
using Visibility = BasicVisibility<std::int64_t>;

}  // namespace tfm
