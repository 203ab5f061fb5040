#pragma once
// Keys that queries see beyond a window of attention: those of global positions (Beltagy et al.
// 2020, "Longformer"), of blocks beside their own, and of random blocks (Zaheer et al. 2020,
// "BigBird"), and of positions at multiples of a distance (Child et al. 2019, "Sparse
// Transformers"). Functions of ranges take as many operations as these have blocks or multiples, on
// CPUs and GPUs.
#include <algorithm>
#include <cstdint>

#include "core/random_blocks.h"
#include "core/span.h"

namespace tfm {

template <class Int>
struct BasicLandmarks {
  static constexpr Int kNever = Int{1} << 30;

  bool causal = false;        // no query sees a key behind its own position, whatever follows
  Int from = 0, to = kNever;  // queries at positions outside of [from, to) see nothing
  Int prefix = 0;             // positions before it see each other
  // Positions before `first` and from `last` on see all and are seen by all.
  Int first = 0, last = kNever;
  // Queries see the keys that are `step`, 2 step, ... to `steps` step positions away, if causal
  // those before; 0: none. Not beside blocks and prefixes.
  Int step = 0, steps = kNever;
  // Positions of a block; 0: there are none. Queries see their own block, those beside it, and
  // `random` others, one of each of so many equal parts of the blocks that remain: of all, or if
  // causal of those before.
  Int block = 0, random = 0;
  Int blocks = 0;  // of a sequence; not read if causal
  // The others are all the first block, which counts 1 + random times for queries that do not see
  // all (repeated()). Sequences of at most most_seen() positions are seen as a whole.
  bool repeats = false;
  RandomKey key = {};

  bool operator==(const BasicLandmarks&) const = default;
  constexpr bool any() const {
    return prefix > 0 || first > 0 || block > 0 || step > 0 || from > 0 || to < kNever;
  }
  template <class To>
  constexpr BasicLandmarks<To> as() const {
    const auto as = [](Int x) { return static_cast<To>(x); };
    return {causal,    as(from),  as(to),     as(prefix), as(first), as(last), as(step),
            as(steps), as(block), as(random), as(blocks), repeats,   key};
  }
  // Those of sequences of so many positions, the last block of which is global where all see all.
  constexpr BasicLandmarks of_length(Int positions) const {
    BasicLandmarks l = *this;
    if (block == 0 || causal) return l;
    l.blocks = (positions + block - 1) / block;
    l.last = std::max(Int{0}, l.blocks - 1) * block;
    return l;
  }

  constexpr Int most_seen() const { return (5 + 2 * random) * block; }
  constexpr bool global(Int position) const { return position < first || position >= last; }
  constexpr bool sees(Int query, Int at) const {
    if (query < prefix && at < prefix) return true;
    if (causal && at > query) return false;
    if (global(query) || global(at)) return true;
    if (step > 0) return strides(query < at ? at - query : query - at);
    if (block == 0) return false;
    const Int q = query / block, k = at / block;
    return (k >= q - 1 && k <= q + 1) || draws(q, k);
  }
  // Whether this key counts 1 + random times for the query.
  constexpr bool repeated(Int query, Int at) const {
    return repeats && at < block && !global(query);
  }

  // f(span) for spans that hold all of the keys that any of the queries sees by these, and besides
  // only positions that are none of the keys.
  template <class F>
  constexpr void each_of_keys(Span<Int> queries, Span<Int> keys, F&& f) const {
    const Int most = causal ? queries.end : kNever;
    const auto add = [&](Int begin, Int end) { f(Span<Int>{begin, std::min(end, most)}); };
    if (queries.begin < prefix) f(Span<Int>{0, prefix});
    add(0, first);
    add(last, kNever);
    if (queries.begin < first) f({0, causal ? std::min(first, queries.end) : kNever});
    if (queries.end > last) add(0, kNever);
    each_step(-1, queries, keys, f);
    if (!causal) each_step(1, queries, keys, f);
    if (block == 0) return;
    const Int begin = queries.begin / block, end = (queries.end - 1) / block + 1;
    add((begin - 1) * block, (end + 1) * block);
    for (Int q = begin; q < end; ++q)
      for (Int i = 0; i < random; ++i)
        if (const Int k = drawn(q, i); k >= 0) f({k * block, (k + 1) * block});
  }
  // The same for the queries that see any of the keys.
  template <class F>
  constexpr void each_of_queries(Span<Int> keys, Span<Int> queries, F&& f) const {
    const Int least = causal ? keys.begin : 0;
    if (keys.begin < prefix) f(Span<Int>{0, prefix});
    f({least, first});
    f({std::max(least, last), kNever});
    if (keys.begin < first) f({least, kNever});
    if (keys.end > last) f({causal ? std::max(last, keys.begin) : 0, kNever});
    each_step(1, keys, queries, f);
    if (!causal) each_step(-1, keys, queries, f);
    if (block == 0) return;
    const Int begin = keys.begin / block, end = (keys.end - 1) / block + 1;
    f({std::max(least, (begin - 1) * block), (end + 1) * block});
    for (Int q = queries.begin / block; random > 0 && q * block < queries.end; ++q)
      for (Int k = begin; k < end; ++k)
        if (draws(q, k)) f({q * block, (q + 1) * block});
  }
  // Whether each of the queries sees each of the keys by one of the rules alone.
  constexpr bool see_whole(Span<Int> queries, Span<Int> keys) const {
    if (queries.end <= prefix && keys.end <= prefix) return true;
    if (causal && keys.end - 1 > queries.begin) return false;
    const auto globals = [this](Span<Int> s) { return s.end <= first || s.begin >= last; };
    if (globals(queries) || globals(keys)) return true;
    if (block == 0)
      return step > 0 && queries.size() == 1 && keys.size() == 1 && sees(queries.begin, keys.begin);
    const Int q = queries.begin / block, q_last = (queries.end - 1) / block, k = keys.begin / block,
              k_last = (keys.end - 1) / block;
    return (k >= q_last - 1 && k_last <= q + 1) || (q == q_last && k == k_last && draws(q, k));
  }

  // Number of pairs of positions, none of them global, that these or a window of `left` and `right`
  // positions show.
  constexpr Int local_pairs(Int left, Int right, Span<Int> queries, Span<Int> keys) const {
    return block > 0 ? block_pairs(queries, keys)
                     : pairs_within(left, right, queries, keys) + far_pairs(left, queries, keys) +
                           (causal ? 0 : far_pairs(right, keys, queries));
  }
  // Number of pairs of which only those of a later key may be hidden.
  constexpr Int all_pairs(Span<Int> queries, Span<Int> keys) const {
    return causal ? pairs_within(kNever, Int{0}, queries, keys) : queries.size() * keys.size();
  }

  // The i-th random block of a block of queries, -1 where there is none; and whether k is one.
  constexpr Int drawn(Int q, Int i) const { return repeats ? -1 : others(q).drawn(i); }
  constexpr bool draws(Int q, Int k) const { return !repeats && others(q).draws(k); }

 private:
  constexpr RandomBlocks<Int> others(Int q) const {
    return {first / block, causal, blocks, q, random, key};
  }
  constexpr bool strides(Int distance) const {
    return distance % step == 0 && distance / step <= steps;
  }
  // f(span) for the spans some steps behind a range (sign 1) or before it (-1) that meet `within`,
  // from left to right; for one that holds them all if the range is as long as a step.
  template <class F>
  constexpr void each_step(Int sign, Span<Int> range, Span<Int> within, F&& f) const {
    const bool behind = sign > 0;
    const Int gap = behind ? within.begin - range.end : range.begin - within.end,
              reach = behind ? within.end - range.begin : range.end - within.begin;
    if (step == 0 || reach <= 0) return;
    const Int least = gap < 0 ? 1 : gap / step + 1, most = std::min(steps, (reach - 1) / step),
              first = behind ? least : -most, last = behind ? most : -least;
    if (range.size() < step)
      for (Int i = first; i <= last; ++i) f(range + i * step);
    else if (first <= last)
      f(Span<Int>{range.begin + first * step, range.end + last * step});
  }
  // Pairs of a query and a key that is some steps, more than `near` positions, before it.
  constexpr Int far_pairs(Int near, Span<Int> queries, Span<Int> keys) const {
    if (step == 0) return 0;
    Int sum = 0;
    const Int most = std::min(steps, (queries.end - keys.begin) / step);
    for (Int i = near / step + 1; i <= most; ++i)
      sum += std::max<Int>(0, (keys + i * step).part(queries).size());
    return sum;
  }
  constexpr Int block_pairs(Span<Int> queries, Span<Int> keys) const {
    Int sum = 0;
    for (Int q = queries.begin / block; q * block < queries.end; ++q) {
      const Span<Int> of = queries.part({q * block, (q + 1) * block});
      const auto add = [&](Int begin, Int end) {
        sum += all_pairs(of, keys.part({begin * block, end * block}));
      };
      add(q - 1, q + 2);
      for (Int i = 0; i < random; ++i)
        if (const Int k = drawn(q, i); k >= 0) add(k, k + 1);
    }
    return sum;
  }
};

}  // namespace tfm
