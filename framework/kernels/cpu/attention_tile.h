#pragma once
// Shared by forward and backward: tiles of query rows of one head, the keys that a row sees, and
// its scores.
#include <limits>

#include "kernels/attention.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/philox_simd.h"
#include "kernels/cpu/simd_softcap.h"
#include "kernels/gemm.h"

namespace tfm::kernels {

inline constexpr std::int64_t kTileQueries = 64;

// Number of keys of sequence b up to the last one that is not padding.
template <class T>
std::int64_t real_keys(const AttentionArgs<T>& a, std::int64_t b) {
  std::int64_t n = a.keys;
  if (a.k_segments)
    while (n > 0 && a.k_segments[a.segment_of_key(b, n - 1)] < 0) --n;
  return n;
}

// Visibility of a tile's keys for one query row: those from `visible` on are hidden; `added` (or
// null) is added to the scores of those before and is -inf for hidden ones.
template <class T>
struct RowView {
  std::int64_t visible;
  const T* added;
};

// Tile of queries [first, first + rows) of head h of sequence b, and the `width` keys from
// `first_key` on, to which all belong that they see. The keys of consecutive tiles overlap, or one
// tile's begin where the other's end.
template <class T>
struct AttentionTile {
  static constexpr std::int64_t kKeyStep = 16;  // first_key is a multiple
  const AttentionArgs<T>& a;
  std::int64_t b, h, first, rows, real;
  Visibility visible;  // by index
  std::int64_t first_key = 0, width = 0;
  bool masked;  // some key may be hidden from a row that sees a later one

  AttentionTile(const AttentionArgs<T>& args, std::int64_t batch, std::int64_t head,
                std::int64_t tile, std::int64_t keys)
      : a(args),
        b(batch),
        h(head),
        first(tile * kTileQueries),
        rows(std::min(kTileQueries, args.queries - first)),
        real(keys),
        visible(args.visible_by_index()) {
    if (const Span<std::int64_t> seen = keys_of(0, rows); seen.size() > 0)
      first_key = seen.begin / kKeyStep * kKeyStep, width = seen.end - first_key;
    masked = hides_by_position() || hides_by_segment();
  }

  bool added() const { return masked || a.bias; }
  std::int64_t query_row(std::int64_t r) const { return b * a.queries + first + r; }
  std::int64_t kv_offset() const {
    return b * (a.kv_length ? a.kv_length : a.keys) * a.kv_stride +
           h / (a.heads / a.kv_heads) * a.head_size + first_key * a.kv_stride;
  }
  std::int64_t q_offset() const { return query_row(0) * a.q_stride + h * a.head_size; }
  std::int64_t out_offset() const { return query_row(0) * a.out_stride + h * a.head_size; }
  // Offset in a.bias of row r and the first key; the other keys follow.
  std::int64_t bias_offset(std::int64_t r) const {
    return h * (a.queries + a.keys - 1) + a.queries - 1 - (first + r) + first_key;
  }
  T& lse(std::int64_t r) const { return a.lse[(b * a.heads + h) * a.queries + first + r]; }
  std::uint64_t dropout_element(std::int64_t r) const {
    const std::int64_t head =
        (a.dropout.first_sequence() + a.sequence_offset + b) * a.heads_total + a.head_offset + h;
    return static_cast<std::uint64_t>((head * a.all_queries() + a.query_offset + first + r) *
                                          round_up(a.all_keys(), 4) +
                                      a.key_offset + first_key);
  }
  // Leading dimension of a scratch matrix (kTileQueries, keys): whole vectors, in rows that do not
  // map to the same cache sets.
  static std::int64_t scratch_stride(std::int64_t keys) { return round_up(keys, 16) + 16; }

  RowView<T> row(std::int64_t r) const {
    const T* bias = a.bias ? a.bias + bias_offset(r) : nullptr;
    const Span<std::int64_t> seen = keys_of(r, r + 1);
    const std::int64_t begin = seen.begin - first_key;
    std::int64_t end = seen.end - first_key;
    if (!masked) return {end, bias};
    // The visible segments are the query's own, or all that are not padding.
    const std::int32_t* segment =
        a.k_segments ? a.k_segments + a.segment_of_key(b, first_key) : nullptr;
    const std::int32_t most = a.q_segments ? a.q_segments[a.segment_of_query(b, first + r)]
                                           : std::numeric_limits<std::int32_t>::max();
    const std::int32_t least = a.q_segments ? std::max(most, 0) : 0;
    const auto sees = [=](std::int64_t s) {
      return !segment || (segment[s] >= least && segment[s] <= most);
    };
    while (end > begin && !sees(end - 1)) --end;
    if (end <= begin) return {0, bias};
    constexpr T hidden = -std::numeric_limits<T>::infinity();
    T* added = scratch<T, struct Added>(a.keys);
    std::fill_n(added, begin, hidden);
    for (std::int64_t s = begin; s < end; ++s) added[s] = sees(s) ? bias ? bias[s] : T{0} : hidden;
    return {end, added};
  }

 private:
  // Keys that rows [begin, end) see.
  Span<std::int64_t> keys_of(std::int64_t begin, std::int64_t end) const {
    return visible.keys_of({first + begin, first + end}, {0, real});
  }
  // The last row sees the least of the first keys.
  bool hides_by_position() const { return keys_of(rows - 1, rows).begin > first_key; }
  bool hides_by_segment() const {
    if (!a.k_segments || a.q_segments) return a.k_segments != nullptr;
    const std::int32_t* segment = a.k_segments + a.segment_of_key(b, first_key);
    return std::any_of(segment, segment + width, [](std::int32_t s) { return s < 0; });
  }
};

// Score of key i from the product q . k, which is already scaled: a factor here would be fused into
// the difference from the row's largest score, which is rounded.
template <class T, bool Added>
struct Score {
  const T* added;
  template <class Lanes>
  TFM_INLINE Vec<T> operator()(Vec<T> product, std::int64_t i, Lanes m) const {
    if constexpr (Added) return product + load(added + i, m);
    return product;
  }
};

template <class T>
struct RowSum {
  T max, sum;
};

// Replaces the products of a row by exp(score - max), and by zeros from `visible` to `width`.
template <class T, bool Added>
RowSum<T> exponentials(T* row, std::int64_t visible, std::int64_t width,
                       const Score<T, Added>& score) {
  constexpr T lowest = -std::numeric_limits<T>::infinity();
  Vec<T> top = splat(lowest), sum{};
  each<T>(visible, [&](std::int64_t i, auto m) TFM_INLINE {
    top = larger<T>(only<T>(score(load(row + i, m), i, m), m, lowest), top);
  });
  const T max = max_of<T>(top);
  each<T>(visible, [&](std::int64_t i, auto m) TFM_INLINE {
    const Vec<T> e = only<T>(exp(score(load(row + i, m), i, m) - max), m);
    sum += e;
    store(row + i, e, m);
  });
  std::fill(row + visible, row + width, T{0});
  return {max, sum_of<T>(sum)};
}

template <class T>
void multiply(T* row, const T* factor, std::int64_t n) {
  each<T>(n, [&](std::int64_t i, auto m)
                 TFM_INLINE { store(row + i, load(row + i, m) * load(factor + i, m), m); });
}

// c (m, n) = alpha op(a) op(b) + beta c, computed by the calling thread.
template <class T>
void tile_product(bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
                  std::int64_t lda, const T* b, std::int64_t ldb, T beta, T* c, std::int64_t ldc,
                  T alpha = 1) {
  cpu::Stream here{1};
  gemm(here, GemmArgs<T>{.transpose_a = ta,
                         .transpose_b = tb,
                         .m = m,
                         .n = n,
                         .k = k,
                         .alpha = alpha,
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
            std::to_string(a.heads) + " query heads cannot be divided evenly among " +
                std::to_string(a.kv_heads) + " key/value heads");
}

}  // namespace tfm::kernels
