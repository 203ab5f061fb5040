#pragma once
// Which rows of a micro-batch a rank has, where ranks share out every sequence.
#include <algorithm>
#include <compare>
#include <cstdint>

namespace tfm {

// Ranks that share out every sequence (context parallelism), and this one's place among them.
struct SequenceShare {
  int ranks = 1, rank = 0;
  auto operator<=>(const SequenceShare&) const = default;
};

// A sequence is cut in 2 `ranks` chunks, of which a rank has two: chunk `rank` counted from the
// first one, and counted from the last one. So causal attention costs every rank the same. The
// first chunks of all sequences come before all second ones.
struct Rows {
  std::int64_t sequences = 0, sequence_length = 0;  // B, and T of all ranks
  SequenceShare share = {};

  constexpr int chunks() const { return share.ranks > 1 ? 2 : 1; }
  constexpr std::int64_t chunk_length() const {
    return sequence_length / (chunks() * std::int64_t{share.ranks});
  }
  constexpr std::int64_t tokens() const { return sequences * chunks() * chunk_length(); }
  constexpr std::int64_t chunk_tokens() const { return sequences * chunk_length(); }
  // Position of a chunk's first row in its sequence.
  constexpr std::int64_t start(int chunk) const {
    return (chunk == 0 ? share.rank : 2 * share.ranks - 1 - share.rank) * chunk_length();
  }
};

// Of rows that follow each other those of one chunk.
struct ChunkRows {
  std::int64_t first = 0, count = 0;  // among them
  std::int64_t offset = 0;            // of the first one in the chunk
  std::int64_t start = 0;             // position of the chunk's first row in its sequence
};
// f(ChunkRows) for each chunk that has some of the rows [begin, begin + count).
template <class F>
void each_chunk(const Rows& rows, std::int64_t begin, std::int64_t count, F&& f) {
  if (rows.chunks() == 1) return f(ChunkRows{0, count, begin, 0});
  for (int k = 0; k < rows.chunks(); ++k) {
    const std::int64_t first = std::max(begin, k * rows.chunk_tokens()),
                       last = std::min(begin + count, (k + 1) * rows.chunk_tokens());
    if (first < last)
      f(ChunkRows{first - begin, last - first, first - k * rows.chunk_tokens(), rows.start(k)});
  }
}

}  // namespace tfm
