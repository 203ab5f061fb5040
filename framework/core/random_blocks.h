#pragma once
// The random blocks of keys that a block of queries sees (Zaheer et al. 2020, "BigBird"): one of
// each of `random` equal parts of the blocks that it sees by no other rule.
#include <algorithm>
#include <cstdint>

#include "core/philox.h"

namespace tfm {

template <class Int>
struct RandomBlocks {
  Int low, high, beside, beside_end;  // [low, high) without [beside, beside_end)
  std::int64_t count;
  Int query, random;
  RandomKey key;

  // Block q of the queries sees them. Blocks before `first` are global and, unless causal, the last
  // one of the sequence's `blocks`, which are not read otherwise.
  constexpr RandomBlocks(Int first, bool causal, Int blocks, Int q, Int parts, RandomKey draws)
      : low(first),
        high(causal ? q - 1 : blocks - 1),
        beside(std::clamp(q - 1, low, std::max(low, high))),
        beside_end(std::clamp(q + 2, low, std::max(low, high))),
        count(q < low || (!causal && q >= high)
                  ? 0
                  : std::max<Int>(0, high - low - (beside_end - beside))),
        query(q),
        random(parts),
        key(draws) {}
  constexpr Int block_at(Int i) const {
    return low + i < beside ? low + i : low + i + beside_end - beside;
  }
  constexpr Int index_of(Int k) const {
    if (count == 0 || k < low || k >= high || (k >= beside && k < beside_end)) return -1;
    return k < beside ? k - low : k - low - (beside_end - beside);
  }
  // The i-th block, -1 where its part is empty; and whether k is one.
  constexpr Int drawn(Int i) const {
    const std::int64_t begin = i * count / random, end = (i + 1) * count / random;
    if (begin == end) return -1;
    const std::uint64_t word = key.word(static_cast<std::uint64_t>(query) * random + i);
    return block_at(static_cast<Int>(
        begin + static_cast<std::int64_t>(word * static_cast<std::uint64_t>(end - begin) >> 32)));
  }
  constexpr bool draws(Int k) const {
    const std::int64_t x = index_of(k);
    return random > 0 && x >= 0 && drawn(static_cast<Int>(((x + 1) * random - 1) / count)) == k;
  }
};

}  // namespace tfm
