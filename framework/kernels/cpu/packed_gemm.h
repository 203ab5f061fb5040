#pragma once
// Products of which all threads together pack the right factor, some of its columns and terms at a
// time, before each multiplies groups of rows of the left factor with it. Sums are held in float,
// in an order that depends only on k, so the bits do not depend on the number of threads.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_half.h"
#include "kernels/gemm.h"

namespace tfm::kernels {

struct PackedRight;  // names of scratch memory that all products share
struct KeptSums;
struct OwnSums;

// `Tile` packs words of kTerms terms each and multiplies them by instructions of its own. It has
//   Args    the product's arguments
//   Word
//   Left    a group of rows of the left factor
//   kPanel  columns of the right factor that are packed together
//   kInner  words of theirs that a group of rows meets at a time
//   kGroup  rows of a group, at most
//   kRows   rows of one block of the product's kernel
//   kSlab   words of the right factor that are packed at once, at most
//   kDepth  those of one column, at most
//   kTogether  panels whose sums are written to C together
//   pack(g, column, columns, term, terms, to): a panel, (words, kPanel), zeros after its columns
//   left(g, row, rows, term, terms): a group, packed or in place
//   multiply(rows, columns, words, left, first, right, sums, accumulate): sums (rows, kPanel) of
//     words [first, first + words) of the group times those of a panel, or added to
template <class Tile>
class PackedGemm {
  using Args = typename Tile::Args;
  using Word = typename Tile::Word;
  static constexpr std::int64_t kTerms = Tile::kTerms, kPanel = Tile::kPanel, kInner = Tile::kInner,
                                kGroup = Tile::kGroup, kRows = Tile::kRows, kSlab = Tile::kSlab,
                                kDepth = Tile::kDepth, kTogether = Tile::kTogether;

 public:
  PackedGemm(const Args& g, int threads) : g_(g), team_{threads} {}

  void run() {
    const std::int64_t words = g_.k / kTerms,
                       depth = std::min(kDepth,
                                        words * std::min(g_.n, kWidth) <= kSlab
                                            ? words
                                            : kSlab / std::min(round_up(g_.n, kPanel), 2 * kWidth)),
                       most = std::max(kSlab / (depth * kPanel), std::int64_t{1}) * kPanel,
                       width = round_up(ceil_div(g_.n, ceil_div(g_.n, most)), kPanel);
    packed_ = scratch<Word, PackedRight>(width * depth);
    kept_ = depth < words ? scratch<float, KeptSums>(g_.m * width) : nullptr;
    for (std::int64_t column = 0; column < g_.n; column += width)
      for (std::int64_t word = 0; word < words; word += depth)
        multiply({column, std::min(g_.n, column + width), word, std::min(depth, words - word)});
  }

 private:
  // Columns that a slab of all terms has at least; where they do not fit, it has some of the terms.
  static constexpr std::int64_t kWidth = 512;

  // Rows and panels of columns that one thread computes.
  struct Part {
    std::int64_t row, row_end, panel, panel_end;
  };

  // Columns and words whose right factor is packed at once.
  struct Slab {
    std::int64_t column, end, word, words;
    std::int64_t panels() const { return ceil_div(end - column, kPanel); }
  };

  // Into how many parts threads divide the rows, and so the panels: with the least work for a
  // thread, then with the most parts of rows, which packs the least of the left factor.
  static std::int64_t parts_of_rows(std::int64_t m, std::int64_t panels, std::int64_t threads) {
    std::int64_t best = 1, least = std::numeric_limits<std::int64_t>::max();
    for (std::int64_t parts = 1; parts <= threads; ++parts) {
      if (threads % parts) continue;
      const std::int64_t work =
          round_up(ceil_div(m, parts), kRows) * ceil_div(panels, threads / parts);
      if (work <= least) least = work, best = parts;
    }
    return best;
  }

  void multiply(const Slab& s) {
    const std::int64_t threads = team_.threads, down = parts_of_rows(g_.m, s.panels(), threads),
                       across = threads / down;
    parallel(team_, s.panels(), kTeamWork, [&](std::int64_t p) {
      const std::int64_t column = s.column + p * kPanel;
      Tile::pack(g_, column, std::min(kPanel, s.end - column), s.word * kTerms, s.words * kTerms,
                 packed_ + p * s.words * kPanel);
    });
    parallel(team_, threads, kTeamWork, [&](std::int64_t t) {
      const auto row = [&](std::int64_t i) {
        return std::min(g_.m, round_up(g_.m * i / down, kRows));
      };
      const std::int64_t i = t / across, j = t % across;
      compute(s, {row(i), row(i + 1), s.panels() * j / across, s.panels() * (j + 1) / across});
    });
  }

  void compute(const Slab& s, const Part& part) const {
    const std::int64_t rows = part.row_end - part.row;
    if (rows <= 0 || part.panel >= part.panel_end) return;
    const std::int64_t size = round_up(ceil_div(rows, ceil_div(rows, kGroup)), kRows);
    float* const own = scratch<float, OwnSums>(kTogether * size * kPanel);
    const bool first = s.word == 0, last = (s.word + s.words) * kTerms == g_.k;
    for (std::int64_t row = part.row; row < part.row_end; row += size) {
      const std::int64_t m = std::min(size, part.row_end - row);
      const auto left = Tile::left(g_, row, m, s.word * kTerms, s.words * kTerms);
      for (std::int64_t begin = part.panel; begin < part.panel_end; begin += kTogether) {
        const std::int64_t end = std::min(begin + kTogether, part.panel_end);
        const auto sums = [&](std::int64_t p) {
          return kept_ ? kept_ + (p * g_.m + row) * kPanel : own + (p - begin) * size * kPanel;
        };
        for (std::int64_t p = begin; p < end; ++p) {
          const std::int64_t column = s.column + p * kPanel, n = std::min(kPanel, s.end - column);
          for (std::int64_t r = 0; last && r < m; ++r)
            __builtin_prefetch(g_.c + (row + r) * g_.ldc + column, 1);
          for (std::int64_t k = 0; k < s.words; k += kInner)
            Tile::multiply(m, n, std::min(kInner, s.words - k), left, k,
                           packed_ + (p * s.words + k) * kPanel, sums(p), !first || k > 0);
        }
        for (std::int64_t r = 0; last && r < m; ++r)
          for (std::int64_t p = begin; p < end; ++p) {
            const std::int64_t column = s.column + p * kPanel;
            finish(sums(p) + r * kPanel, row + r, column, std::min(kPanel, s.end - column));
          }
      }
    }
  }

  // One row's columns of a panel.
  void finish(const float* sums, std::int64_t row, std::int64_t column, std::int64_t n) const {
    auto* const c = g_.c + row * g_.ldc + column;
    each<float>(n, [&](std::int64_t i, auto lanes) TFM_INLINE {
      Vec<float> v = load(sums + i, lanes) * g_.alpha;
      if (g_.bias) v += load(g_.bias + column + i, lanes);
      if (g_.beta != 0) v += load(c + i, lanes) * g_.beta;
      store(c + i, v, lanes);
    });
  }

  const Args& g_;
  cpu::Stream team_;
  Word* packed_ = nullptr;  // panels of (words, kPanel)
  float* kept_ = nullptr;   // sums of all rows, by panel, where terms come in several slabs
};

}  // namespace tfm::kernels
