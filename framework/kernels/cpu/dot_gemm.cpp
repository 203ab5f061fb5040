#include "kernels/cpu/dot_gemm.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/dot_product.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_half.h"

namespace tfm::kernels {
namespace {

// A panel of columns of the right factor is packed together; of its pairs of terms kInner at a time
// meet a group of rows.
constexpr std::int64_t kPanel = 64, kInner = 384, kGroup = 192;
// Words of the right factor that are packed at once: for at least kWidth columns, or of some of the
// terms.
constexpr std::int64_t kPacked = 1 << 20, kWidth = 512;
constexpr std::int64_t kRows = 6;     // of C in one block of the product's kernel
constexpr std::int64_t kLeast = 512;  // rows, columns and terms from which on packing pays

// Rows and panels of columns that one thread computes.
struct Part {
  std::int64_t row, row_end, panel, panel_end;
};

// Into how many parts threads divide the rows, and so the panels: with the least work for a thread,
// then with the most parts of rows, which packs the least of a transposed left factor.
std::int64_t parts_of_rows(std::int64_t m, std::int64_t panels, std::int64_t threads) {
  std::int64_t best = 1, least = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t parts = 1; parts <= threads; ++parts) {
    if (threads % parts) continue;
    const std::int64_t work =
        round_up(ceil_div(m, parts), kRows) * ceil_div(panels, threads / parts);
    if (work <= least) least = work, best = parts;
  }
  return best;
}

// Columns and pairs of terms whose right factor is packed at once.
struct Slab {
  std::int64_t column, end, pair, pairs;
  std::int64_t panels() const { return ceil_div(end - column, kPanel); }
};

template <class C>
class DotGemm {
 public:
  DotGemm(const GemmArgs<bf16, C>& g, int threads) : g_(g), team_{threads} {}

  void run() {
    const std::int64_t pairs = g_.k / 2,
                       depth = pairs * std::min(g_.n, kWidth) <= kPacked
                                   ? pairs
                                   : kPacked / std::min(round_up(g_.n, kPanel), 2 * kWidth),
                       most = std::max(kPacked / (depth * kPanel), std::int64_t{1}) * kPanel,
                       width = round_up(ceil_div(g_.n, ceil_div(g_.n, most)), kPanel);
    packed_ = scratch<std::uint32_t, struct Packed>(width * depth);
    kept_ = depth < pairs ? scratch<float, struct Kept>(g_.m * width) : nullptr;
    for (std::int64_t column = 0; column < g_.n; column += width)
      for (std::int64_t pair = 0; pair < pairs; pair += depth)
        multiply({column, std::min(g_.n, column + width), pair, std::min(depth, pairs - pair)});
  }

 private:
  void multiply(const Slab& s) {
    const std::int64_t threads = team_.threads, down = parts_of_rows(g_.m, s.panels(), threads),
                       across = threads / down;
    parallel(team_, s.panels(), kTeamWork, [&](std::int64_t p) { pack(s, p); });
    parallel(team_, threads, kTeamWork, [&](std::int64_t t) {
      const auto row = [&](std::int64_t i) {
        return std::min(g_.m, round_up(g_.m * i / down, kRows));
      };
      const std::int64_t i = t / across, j = t % across;
      compute(s, {row(i), row(i + 1), s.panels() * j / across, s.panels() * (j + 1) / across});
    });
  }

  void pack(const Slab& s, std::int64_t panel) const {
    const std::int64_t column = s.column + panel * kPanel, n = std::min(kPanel, s.end - column),
                       term = 2 * s.pair, terms = 2 * s.pairs;
    std::uint32_t* const to = packed_ + panel * s.pairs * kPanel;
    if (g_.transpose_b)
      pair_columns(g_.b + column * g_.ldb + term, g_.ldb, n, terms, to, kPanel);
    else
      pair_rows(g_.b + term * g_.ldb + column, g_.ldb, terms, n, to, kPanel);
  }

  void compute(const Slab& s, const Part& part) const {
    const std::int64_t rows = part.row_end - part.row;
    if (rows <= 0 || part.panel >= part.panel_end) return;
    const std::int64_t size = round_up(ceil_div(rows, ceil_div(rows, kGroup)), kRows);
    auto* const words =
        scratch<std::uint32_t, struct LeftWords>(g_.transpose_a ? s.pairs * size : 0);
    float* const own = scratch<float, struct Own>(size * kPanel);
    const bool first = s.pair == 0, last = 2 * (s.pair + s.pairs) == g_.k;
    for (std::int64_t row = part.row; row < part.row_end; row += size) {
      const std::int64_t m = std::min(size, part.row_end - row), term = 2 * s.pair;
      DotRows left{g_.a + row * g_.lda + term, g_.lda, 2};
      if (g_.transpose_a) {
        pair_rows(g_.a + term * g_.lda + row, g_.lda, 2 * s.pairs, m, words, size);
        left = {reinterpret_cast<const bf16*>(words), 2, 2 * size};
      }
      for (std::int64_t p = part.panel; p < part.panel_end; ++p) {
        const std::int64_t column = s.column + p * kPanel, n = std::min(kPanel, s.end - column);
        const std::uint32_t* const right = packed_ + p * s.pairs * kPanel;
        float* const sums = kept_ ? kept_ + (p * g_.m + row) * kPanel : own;
        for (std::int64_t k = 0; k < s.pairs; k += kInner)
          dot_product(m, n, std::min(kInner, s.pairs - k),
                      {left.data + k * left.pair, left.row, left.pair},
                      {right + k * kPanel, kPanel}, sums, kPanel, !first || k > 0);
        for (std::int64_t r = 0; last && r < m; ++r) finish(sums + r * kPanel, row + r, column, n);
      }
    }
  }

  // One row's columns of a panel.
  void finish(const float* sums, std::int64_t row, std::int64_t column, std::int64_t n) const {
    C* const c = g_.c + row * g_.ldc + column;
    each<float>(n, [&](std::int64_t i, auto lanes) TFM_INLINE {
      Vec<float> v = load(sums + i, lanes) * g_.alpha;
      if (g_.bias) v += load(g_.bias + column + i, lanes);
      if (g_.beta != 0) v += load(c + i, lanes) * g_.beta;
      store(c + i, v, lanes);
    });
  }

  const GemmArgs<bf16, C>& g_;
  cpu::Stream team_;
  std::uint32_t* packed_ = nullptr;  // panels of (pairs, kPanel)
  float* kept_ = nullptr;  // sums of all rows, by panel, where terms come in several slabs
};

}  // namespace

template <class C>
bool dot_gemm_takes(const GemmArgs<bf16, C>& g) {
  return g.k % 2 == 0 && std::min({g.m, g.n, g.k}) >= kLeast;
}

template <class C>
void dot_gemm(cpu::Stream& stream, const GemmArgs<bf16, C>& g) {
  DotGemm<C>(g, usable_threads(stream)).run();
}

#define TFM_INSTANTIATE(C)                                \
  template bool dot_gemm_takes(const GemmArgs<bf16, C>&); \
  template void dot_gemm(cpu::Stream&, const GemmArgs<bf16, C>&);
TFM_INSTANTIATE(bf16)
TFM_INSTANTIATE(float)

}  // namespace tfm::kernels
