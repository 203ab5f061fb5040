#pragma once
// What forward and backward share: tiles of query rows of one head, which keys a row sees, and its scores.
#include "kernels/attention.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/philox_simd.h"
#include "kernels/cpu/simd.h"
#include "kernels/gemm.h"

namespace tfm::kernels {

inline constexpr std::int64_t kTileQueries = 64;

// Keys that query t of sequence b sees; never falls as t grows.
template <class T>
std::int64_t visible_keys(const AttentionArgs<T>& a, std::int64_t b, std::int64_t t) {
  std::int64_t n = a.key_lengths ? std::min<std::int64_t>(a.key_lengths[b], a.keys) : a.keys;
  if (a.causal) n = std::min(n, t + a.keys - a.queries + 1);
  return std::max<std::int64_t>(n, 0);
}

// One tile: queries [first, first + rows) of head h of sequence b against the first `width` keys.
template <class T>
struct AttentionTile {
  const AttentionArgs<T>& a;
  std::int64_t b, h, first, rows, width;

  AttentionTile(const AttentionArgs<T>& args, std::int64_t batch, std::int64_t head, std::int64_t tile)
      : a(args),
        b(batch),
        h(head),
        first(tile * kTileQueries),
        rows(std::min(kTileQueries, args.queries - first)),
        width(visible_keys(args, batch, first + rows - 1)) {}

  std::int64_t query_row(std::int64_t r) const { return b * a.queries + first + r; }
  std::int64_t kv_offset() const { return b * a.keys * a.kv_stride + h / (a.heads / a.kv_heads) * a.head_size; }
  std::int64_t q_offset() const { return query_row(0) * a.q_stride + h * a.head_size; }
  std::int64_t out_offset() const { return query_row(0) * a.out_stride + h * a.head_size; }
  T& lse(std::int64_t r) const { return a.lse[(b * a.heads + h) * a.queries + first + r]; }
  std::uint64_t dropout_element(std::int64_t r) const {
    const std::int64_t head = (a.sequence_offset + b) * a.heads_total + a.head_offset + h;
    return static_cast<std::uint64_t>((head * a.queries + first + r) * round_up(a.keys, 4));
  }
  // Leading dimension of a (kTileQueries, keys) scratch: whole vectors, and rows that do not share cache sets.
  static std::int64_t scratch_stride(std::int64_t keys) { return round_up(keys, 16) + 16; }
};

// Score of key i from the product q . k: scale * product - slope * (t + keys - queries - i).
template <class T, bool Alibi>
struct Score {
  T scale, slope, position;

  Score(const AttentionTile<T>& tile, std::int64_t r)
      : scale(tile.a.scale),
        slope(Alibi ? tile.a.slopes[tile.h] : T{0}),
        position(static_cast<T>(tile.first + r + tile.a.keys - tile.a.queries)) {}
  TFM_INLINE Vec<T> operator()(Vec<T> product, std::int64_t i) const {
    if constexpr (Alibi) return product * scale - slope * (position - static_cast<T>(i) - iota<T>());
    return product * scale;
  }
};

// c (m, n) = op(a) op(b) + beta c in the calling thread.
template <class T>
void tile_product(bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k, const T* a, std::int64_t lda, const T* b,
                  std::int64_t ldb, T beta, T* c, std::int64_t ldc) {
  cpu::Stream here{1};
  gemm(here, GemmArgs<T>{.transpose_a = ta,
                         .transpose_b = tb,
                         .m = m,
                         .n = n,
                         .k = k,
                         .a = a,
                         .lda = lda,
                         .b = b,
                         .ldb = ldb,
                         .beta = beta,
                         .c = c,
                         .ldc = ldc});
}

template <class T>
void zero_rows(T* p, std::int64_t rows, std::int64_t cols, std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r) std::fill_n(p + r * stride, cols, T{0});
}

template <class T>
void check(const AttentionArgs<T>& a) {
  TFM_CHECK(a.kv_heads > 0 && a.heads % a.kv_heads == 0,
            std::to_string(a.heads) + " query heads cannot share " + std::to_string(a.kv_heads) + " key heads evenly");
}

}  // namespace tfm::kernels
