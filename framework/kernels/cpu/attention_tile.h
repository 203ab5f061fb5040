#pragma once
// Tiles of query rows of one head, and the keys that a row sees.
#include <cmath>
#include <limits>
#include <span>

#include "kernels/attention.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/philox_simd.h"

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

// Keys [key, key + width), which are the columns from `column` on of a tile's scores.
struct KeyRun {
  std::int64_t key, width, column;
};

// Tile of queries [first, first + rows) of head h of sequence b, and the runs of keys to which all
// belong that they see; scores have a column for each of these keys.
template <class T>
struct AttentionTile {
  static constexpr std::int64_t kKeyStep = 16;  // first keys and columns of runs are multiples
  const AttentionArgs<T>& a;
  std::int64_t b, h, first, rows, real;
  Visibility visible;      // by index
  std::span<KeyRun> runs;  // in scratch memory: valid until the thread makes the next tile
  std::int64_t width = 0;  // columns
  bool masked;             // some key may be hidden from a row that sees a later one

  AttentionTile(const AttentionArgs<T>& args, std::int64_t batch, std::int64_t head,
                std::int64_t tile, std::int64_t keys)
      : a(args),
        b(batch),
        h(head),
        first(tile * kTileQueries),
        rows(std::min(kTileQueries, args.queries - first)),
        real(keys),
        visible(args.visible_by_index(batch)),
        runs(scratch<KeyRun, struct Runs>(keys / kKeyStep + 2), 0) {
    const Span<std::int64_t> queries{first, first + rows};
    for (Span<std::int64_t> seen{0, 0}; seen.end < real;)
      if (seen = visible.first_keys(queries, {seen.end, real}); seen.size() > 0) add_run(seen);
    masked = hides_by_position() || hides_by_segment();
  }

  bool added() const { return masked || a.bias; }
  std::int64_t query_row(std::int64_t r) const { return b * a.queries + first + r; }
  std::int64_t kv_offset(const KeyRun& run) const {
    return b * (a.kv_length ? a.kv_length : a.keys) * a.kv_stride +
           h / (a.heads / a.kv_heads) * a.head_size + run.key * a.kv_stride;
  }
  std::int64_t q_offset() const { return query_row(0) * a.q_stride + h * a.head_size; }
  std::int64_t out_offset() const { return query_row(0) * a.out_stride + h * a.head_size; }
  // Offset in a.bias of row r and a key; the other keys follow.
  std::int64_t bias_offset(std::int64_t r, std::int64_t key) const {
    return h * (a.queries + a.keys - 1) + a.queries - 1 - (first + r) + key;
  }
  T& lse(std::int64_t r) const { return a.lse[(b * a.heads + h) * a.queries + first + r]; }
  // Leading dimension of a scratch matrix (kTileQueries, keys): whole vectors, in rows that do not
  // map to the same cache sets.
  static std::int64_t scratch_stride(std::int64_t keys) { return round_up(keys, 16) + 16; }

  RowView<T> row(std::int64_t r) const {
    if (!masked) {
      const KeyRun& run = runs.front();
      return {keys_of(r, r + 1).end - run.key, a.bias ? a.bias + bias_offset(r, run.key) : nullptr};
    }
    constexpr T hidden = -std::numeric_limits<T>::infinity();
    T* added = scratch<T, struct Added>(width);
    if (!visible.beyond.any()) {  // one span of one run
      const KeyRun& run = runs.front();
      const Span<std::int64_t> seen = keys_of(r, r + 1);
      const std::int64_t end = add_keys(r, seen, added - run.key);
      if (end <= seen.begin) return {0, added};
      std::fill_n(added, seen.begin - run.key, hidden);
      return {end - run.key, added};
    }
    std::fill_n(added, width, hidden);
    std::int64_t columns = 0;
    visible.each_of_keys({first + r, first + r + 1}, {0, real}, [&](Span<std::int64_t> seen) {
      const KeyRun& run = *std::ranges::partition_point(
          runs, [&](const KeyRun& x) { return x.key + x.width <= seen.begin; });
      const std::int64_t at = run.column - run.key, end = add_keys(r, seen, added + at);
      if (end > seen.begin) columns = std::max(columns, at + end);
    });
    if (visible.beyond.repeats) repeat_keys(r, added);
    return {columns, added};
  }
  // Dropout factors of the first `columns` of row r. `buffer` has room for the tile's and
  // kFactorSlack more.
  const T* factors(std::int64_t r, std::int64_t columns, T* buffer) const {
    if (runs.size() <= 1)
      return dropout_factors(a.dropout, dropout_element(r, columns > 0 ? runs.front().key : 0),
                             columns, buffer);
    for (const KeyRun& run : runs) {
      const std::int64_t n = std::min(run.width, columns - run.column);
      if (n <= 0) break;
      T* part = scratch<T, struct RunFactors>(n + kFactorSlack);
      std::copy_n(dropout_factors(a.dropout, dropout_element(r, run.key), n, part), n,
                  buffer + run.column);
    }
    return buffer;
  }

 private:
  // Keys from the first to the last that rows [begin, end) see.
  Span<std::int64_t> keys_of(std::int64_t begin, std::int64_t end) const {
    return visible.keys_of({first + begin, first + end}, {0, real});
  }
  void add_run(Span<std::int64_t> seen) {
    const std::int64_t key = seen.begin / kKeyStep * kKeyStep;
    if (!runs.empty()) {  // ends where whole columns do, or this one begins
      KeyRun& last = runs.back();
      last.width = std::min(round_up(last.width, kKeyStep), key - last.key);
      if (last.width == key - last.key) {
        last.width = seen.end - last.key;
        width = last.column + last.width;
        return;
      }
      width = last.column + last.width;
    }
    runs = {runs.data(), runs.size() + 1};
    runs.back() = {key, seen.end - key, width};
    width += seen.end - key;
  }
  // Adds the bias of a row and of keys that it sees by their positions to zeros in added[key], -inf
  // to those of other segments. Returns the end of those that it sees.
  std::int64_t add_keys(std::int64_t r, Span<std::int64_t> keys, T* added) const {
    const T* bias = a.bias ? a.bias + bias_offset(r, 0) : nullptr;
    // The visible segments are the query's own, or all that are not padding.
    const std::int32_t* segment = a.k_segments ? a.k_segments + a.segment_of_key(b, 0) : nullptr;
    const std::int32_t most = a.q_segments ? a.q_segments[a.segment_of_query(b, first + r)]
                                           : std::numeric_limits<std::int32_t>::max();
    const std::int32_t least = a.q_segments ? std::max(most, 0) : 0;
    const auto sees = [=](std::int64_t s) {
      return !segment || (segment[s] >= least && segment[s] <= most);
    };
    std::int64_t end = keys.end;
    while (end > keys.begin && !sees(end - 1)) --end;
    for (std::int64_t s = keys.begin; s < end; ++s)
      added[s] = sees(s) ? bias ? bias[s] : T{0} : -std::numeric_limits<T>::infinity();
    return end;
  }
  void repeat_keys(std::int64_t r, T* added) const {
    const auto& beyond = visible.beyond;
    const T times = std::log(static_cast<T>(1 + beyond.random));
    if (!beyond.repeated(first + r + visible.query_at, 0)) return;
    for (const KeyRun& run : runs) {
      const std::int64_t n = std::min(run.width, beyond.block - visible.key_at - run.key);
      for (std::int64_t i = 0; i < n; ++i) added[run.column + i] += times;
    }
  }
  std::uint64_t dropout_element(std::int64_t r, std::int64_t key) const {
    const std::int64_t head =
        (a.dropout.first_sequence() + a.sequence_offset + b) * a.heads_total + a.head_offset + h;
    return static_cast<std::uint64_t>((head * a.all_queries() + a.query_offset + first + r) *
                                          round_up(a.all_keys(), 4) +
                                      a.key_offset + key);
  }
  // Without landmarks, the last row sees the least of the first keys.
  bool hides_by_position() const {
    return !runs.empty() &&
           (visible.beyond.any() || keys_of(rows - 1, rows).begin > runs.front().key);
  }
  bool hides_by_segment() const {
    if (!a.k_segments || a.q_segments) return a.k_segments != nullptr;
    const std::int32_t* segment = a.k_segments + a.segment_of_key(b, 0);
    return std::ranges::any_of(runs, [&](const KeyRun& run) {
      return std::any_of(segment + run.key, segment + run.key + run.width,
                         [](std::int32_t s) { return s < 0; });
    });
  }
};

}  // namespace tfm::kernels
