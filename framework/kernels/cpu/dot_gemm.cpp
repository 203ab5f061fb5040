#include "kernels/cpu/dot_gemm.h"

#include <algorithm>

#include "kernels/cpu/dot_product.h"
#include "kernels/cpu/packed_gemm.h"

namespace tfm::kernels {
namespace {

constexpr std::int64_t kLeast = 512;  // rows, columns and terms from which on packing pays

// Words are pairs of terms.
template <class C>
struct DotTile {
  using Args = GemmArgs<bf16, C>;
  using Word = std::uint32_t;
  using Left = DotRows;
  static constexpr std::int64_t kTerms = 2, kPanel = 64, kInner = 384, kGroup = 192, kRows = 6,
                                kSlab = 1 << 20, kDepth = kSlab, kTogether = 1;

  static void pack(const Args& g, std::int64_t column, std::int64_t columns, std::int64_t term,
                   std::int64_t terms, Word* to) {
    if (g.transpose_b)
      pair_columns(g.b + column * g.ldb + term, g.ldb, columns, terms, to, kPanel);
    else
      pair_rows(g.b + term * g.ldb + column, g.ldb, terms, columns, to, kPanel);
  }

  static Left left(const Args& g, std::int64_t row, std::int64_t rows, std::int64_t term,
                   std::int64_t terms) {
    if (!g.transpose_a) return {g.a + row * g.lda + term, g.lda, 2};
    const std::int64_t stride = round_up(rows, kRows);
    Word* const words = scratch<Word, struct LeftWords>(terms / kTerms * stride);
    pair_rows(g.a + term * g.lda + row, g.lda, terms, rows, words, stride);
    return {reinterpret_cast<const bf16*>(words), 2, 2 * stride};
  }

  static void multiply(std::int64_t rows, std::int64_t columns, std::int64_t words,
                       const Left& left, std::int64_t first, const Word* right, float* sums,
                       bool accumulate) {
    dot_product(rows, columns, words, {left.data + first * left.pair, left.row, left.pair},
                {right, kPanel}, sums, kPanel, accumulate);
  }
};

}  // namespace

template <class C>
bool dot_gemm_takes(const GemmArgs<bf16, C>& g) {
  return g.k % 2 == 0 && std::min({g.m, g.n, g.k}) >= kLeast;
}

template <class C>
void dot_gemm(cpu::Stream& stream, const GemmArgs<bf16, C>& g) {
  PackedGemm<DotTile<C>>(g, usable_threads(stream)).run();
}

#define TFM_INSTANTIATE(C)                                \
  template bool dot_gemm_takes(const GemmArgs<bf16, C>&); \
  template void dot_gemm(cpu::Stream&, const GemmArgs<bf16, C>&);
TFM_INSTANTIATE(bf16)
TFM_INSTANTIATE(float)

}  // namespace tfm::kernels
