#pragma once
// Rows of a micro-batch that a rank holds under context parallelism.
#include <algorithm>
#include <compare>
#include <cstdint>

namespace tfm {

// Number of ranks among which every sequence is divided (context parallelism), and the index of
// this rank among them.
struct SequenceShare {
  int ranks = 1, rank = 0;
  auto operator<=>(const SequenceShare&) const = default;
};

// A sequence is cut into 2 * ranks chunks of equal length. Rank r holds chunk r from the start and
// chunk r from the end, so that causal attention costs every rank the same. In memory, the first
// chunks of all sequences precede all second chunks. A single rank holds whole sequences, as one
// chunk each.
struct Rows {
  std::int64_t sequences = 0, sequence_length = 0;  // B, and T over all ranks
  SequenceShare share = {};

  constexpr int chunks() const { return share.ranks > 1 ? 2 : 1; }
  constexpr std::int64_t chunk_length() const {
    return sequence_length / (chunks() * std::int64_t{share.ranks});
  }
  constexpr std::int64_t tokens() const { return sequences * chunks() * chunk_length(); }
  constexpr std::int64_t chunk_tokens() const { return sequences * chunk_length(); }
  // Position in the sequence of the first row of the rank's chunk 0 or 1.
  constexpr std::int64_t start(int chunk) const {
    return (chunk == 0 ? share.rank : 2 * share.ranks - 1 - share.rank) * chunk_length();
  }
};

// The part of a range of consecutive rows that lies in one chunk.
struct ChunkRows {
  std::int64_t first = 0, count = 0;  // rows [first, first + count) of the range
  std::int64_t offset = 0;            // row of the chunk at which the part starts
  std::int64_t start = 0;             // position in the sequence of the chunk's first row
};
// Calls f(ChunkRows) for each chunk that overlaps rows [begin, begin + count).
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

// Calls f(row, position) for each row that this rank holds of positions [begin, end) of a
// sequence.
template <class F>
constexpr void each_row(const Rows& rows, std::int64_t sequence, std::int64_t begin,
                        std::int64_t end, F&& f) {
  const std::int64_t length = rows.chunk_length();
  for (int k = 0; k < rows.chunks(); ++k) {
    const std::int64_t start = rows.start(k), first = begin > start ? begin : start,
                       last = end < start + length ? end : start + length,
                       row = k * rows.chunk_tokens() + sequence * length - start;
    for (std::int64_t t = first; t < last; ++t) f(row + t, t);
  }
}

}  // namespace tfm
