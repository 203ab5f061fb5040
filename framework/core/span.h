#pragma once
// Ranges of positions.
#include <algorithm>

namespace tfm {

// Positions [begin, end).
template <class Int>
struct Span {
  Int begin = 0, end = 0;
  constexpr Int size() const { return end - begin; }
  bool operator==(const Span&) const = default;

  constexpr Int nearest(Int x) const { return std::min(std::max(x, begin), end); }
  // The part of `s` that is in this range.
  constexpr Span part(Span s) const { return {nearest(s.begin), nearest(s.end)}; }
  constexpr Span operator+(Int by) const { return {begin + by, end + by}; }
};

// Number of pairs of a query and a key that lies at most `left` positions before and `right`
// behind.
template <class Int>
constexpr Int pairs_within(Int left, Int right, Span<Int> queries, Span<Int> keys) {
  const Int n = keys.size();
  // The sum of min(max(i, 0), n) over i < x: i keys are at or before the i-th position.
  const auto sum = [n](Int x) {
    const Int m = Span<Int>{0, n}.nearest(x);
    return m * (m - 1) / 2 + (std::max(x, n) - n) * n;
  };
  // Pairs whose key is at most so far behind the query.
  const auto within = [&](Int reach) {
    const Int first = queries.begin + reach + 1 - keys.begin;
    return sum(first + queries.size()) - sum(first);
  };
  return within(right) - within(-left - 1);
}

// each(f) calls f(span) for spans in `range`, none of them empty, in any order; they may overlap.
// From the first to the last of their positions; empty if there are none.
template <class Int, class Each>
constexpr Span<Int> hull(Span<Int> range, Each&& each) {
  Span<Int> all{range.end, range.begin};
  each([&](Span<Int> s) { all = {std::min(all.begin, s.begin), std::max(all.end, s.end)}; });
  return all.size() < 0 ? Span<Int>{range.begin, range.begin} : all;
}
// Their first positions side by side, all of them; empty, at the end of the range, if there are
// none.
template <class Int, class Each>
constexpr Span<Int> first_run(Span<Int> range, Each&& each) {
  Span<Int> run{range.end, range.end};
  each([&](Span<Int> s) {
    if (s.begin < run.begin) run = s;
  });
  for (Int end = run.begin; end != run.end;) {
    end = run.end;
    each([&](Span<Int> s) {
      if (s.begin <= run.end && s.end > run.end) run.end = s.end;
    });
  }
  return run;
}

}  // namespace tfm
