#pragma once
// Rows of some positions and all heads, rearranged for an exchange after which a rank has all
// positions of some heads (Jacobs et al. 2023, "DeepSpeed Ulysses").
#include <array>
#include <cstdint>

#include "core/dtype.h"
#include "core/rows.h"
#include "device/stream.h"

namespace tfm::kernels {

// Columns in up to three sections (such as queries, keys and values), of each of which every rank
// has an equal share.
struct HeadSections {
  std::array<std::int64_t, 3> widths{};

  constexpr std::int64_t cols() const { return widths[0] + widths[1] + widths[2]; }
  // Calls f(first column, its place among those of a share, number) for each part of a share.
  template <class F>
  constexpr void each_part(int ranks, int rank, F&& f) const {
    std::int64_t first = 0, place = 0;
    for (const std::int64_t width : widths) {
      const std::int64_t share = width / ranks;
      if (share > 0) f(first + rank * share, place, share);
      first += width, place += share;
    }
  }
  // The column at a place of a share.
  constexpr std::int64_t column(int ranks, int rank, std::int64_t place) const {
    std::int64_t first = 0;
    for (const std::int64_t width : widths) {
      const std::int64_t share = width / ranks;
      if (place < share) return first + rank * share + place;
      place -= share, first += width;
    }
    return first;
  }
};

// Between what is exchanged, (ranks, rows.tokens(), cols / ranks), whose first index is the other
// rank, and one of
// - positions of this rank: (rows.tokens(), cols); the other rank's share of the columns;
// - heads of this rank: (B T, cols / ranks), of sequences of T; the other rank's rows.
template <class T>
struct HeadSharesArgs {
  Rows rows;  // of this rank
  HeadSections sections;
  bool heads = false;      // whether the second kind is meant
  bool exchanged = false;  // whether `to` is what is exchanged
  const T* from = nullptr;
  T* to = nullptr;
  bool accumulate = false;  // adds to `to`

  // The row of B T that is row `row` of rank `rank`.
  constexpr std::int64_t whole_row(int rank, std::int64_t row) const {
    const Rows theirs{rows.sequences, rows.sequence_length, {rows.share.ranks, rank}};
    const std::int64_t chunk = row / theirs.chunk_tokens(), at = row % theirs.chunk_tokens(),
                       length = theirs.chunk_length();
    return at / length * rows.sequence_length + theirs.start(static_cast<int>(chunk)) + at % length;
  }
};

template <class T>
void head_shares(cpu::Stream&, const HeadSharesArgs<T>&);
template <class T>
void head_shares(cuda::Stream&, const HeadSharesArgs<T>&);

}  // namespace tfm::kernels
