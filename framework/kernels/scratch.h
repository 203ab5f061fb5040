#pragma once
// Bytes of scratch memory that GPU kernels take in addition to their operands, and the partition of
// work on which it depends. Used by plans and by the kernels themselves. `bytes`: size of an
// element; `wide`: size of the type in which sums are held.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/visibility.h"
#include "device/memory.h"

namespace tfm::kernels {

// Each thread block processes `rows_a_block` rows and writes one row of partial sums.
struct RowPartition {
  std::int64_t blocks, rows_a_block;
};

inline constexpr std::int64_t kColumnStrip = 256;  // columns of a thread block
// Enough blocks to fill a GPU, of at least 64 rows each.
inline RowPartition column_sum_partition(std::int64_t rows, std::int64_t cols) {
  const std::int64_t blocks = std::clamp<std::int64_t>(
      ceil_div(rows, 64), 1, std::max<std::int64_t>(1, 1024 / ceil_div(cols, kColumnStrip)));
  return {blocks, ceil_div(rows, blocks)};
}
inline std::int64_t column_sum_scratch(std::int64_t rows, std::int64_t cols, std::int64_t wide) {
  return cols > 0 ? device::scratch_piece(column_sum_partition(rows, cols).blocks * cols * wide)
                  : 0;
}

inline constexpr std::int64_t kNormBackwardThreads = 512, kNormBackwardThreadsOfOnePack = 256;
// Number of packs of 8 elements that a thread holds.
inline std::int64_t norm_backward_packs(std::int64_t cols, std::int64_t bytes) {
  return bytes < 8 && cols > 8 * kNormBackwardThreadsOfOnePack ? 2 : 1;
}
inline std::int64_t norm_backward_threads(std::int64_t cols, std::int64_t bytes) {
  return std::min(round_up(ceil_div(cols, 8 * norm_backward_packs(cols, bytes)), std::int64_t{32}),
                  kNormBackwardThreads);
}
// At least 8 rows per block, and no more blocks than 128 multiprocessors run at once with 64
// (16-bit types), 96 (float) or 128 registers per thread (double, or two packs).
inline RowPartition norm_backward_partition(std::int64_t rows, std::int64_t cols,
                                            std::int64_t bytes) {
  const std::int64_t registers = norm_backward_packs(cols, bytes) == 2 || bytes == 8 ? 128
                                 : bytes == 4                                        ? 96
                                                                                     : 64;
  const std::int64_t at_once =
      std::max<std::int64_t>(1, 65536 / registers / norm_backward_threads(cols, bytes));
  const std::int64_t rows_a_block = std::max<std::int64_t>(8, ceil_div(rows, 128 * at_once));
  return {ceil_div(rows, rows_a_block), rows_a_block};
}
inline std::int64_t norm_backward_scratch(std::int64_t rows, std::int64_t cols,
                                          std::int64_t bytes) {
  return cols > 0 ? device::scratch_piece(norm_backward_partition(rows, cols, bytes).blocks * 2 *
                                          cols * std::max<std::int64_t>(bytes, 4))
                  : 0;
}

inline constexpr std::int64_t kEmbeddingChunk = 64;  // sorted rows that a thread block sums
inline std::int64_t embedding_backward_scratch(std::int64_t rows, std::int64_t cols,
                                               std::int64_t wide) {
  return 2 * device::scratch_piece(2 * rows * 4) +
         device::scratch_piece(ceil_div(rows, kEmbeddingChunk) * 2 * cols * wide);
}

// Table of the angles of `positions` positions.
inline std::int64_t rotary_scratch(std::int64_t positions, std::int64_t turning,
                                   std::int64_t wide) {
  return device::scratch_piece(std::max<std::int64_t>(1, positions * (turning / 2) * 2) * wide);
}

struct AttentionExtents {
  std::int64_t batch, heads, kv_heads, queries, keys, head_size;
  Visibility visible;  // by index
  bool segments = false, bias = false, bias_gradient = false, dropout = false;
  bool softcap = false;   // of scores
  bool prefixes = false;  // of sequences, which see each other
  bool lengths = false;   // segments only mark right padding

  // Whether positions hide a key from a query.
  bool masked() const { return visible.seen({0, queries}, {0, keys}) != Seen::whole; }
  // Whether the last query sees every key, each before it one key less, and all of them some.
  bool causal() const {
    return queries <= keys && visible.right == keys - queries && visible.left >= queries - 1 &&
           !visible.beyond.any();
  }
  // Whether cuDNN may be used, on a GPU for which it is available; see
  // kernels/cuda/attention_cudnn.h.
  bool of_library(std::int64_t bytes) const {
    return bytes == 2 && head_size % 8 == 0 && head_size <= 256 && std::min(queries, keys) >= 64 &&
           (masked() ? causal() && !segments : !segments || lengths) && !bias && !dropout &&
           !softcap && !prefixes && !visible.beyond.repeats;
  }
};
// More than cuDNN's forward asks for.
inline constexpr std::int64_t kLibraryAttentionScratch = 64 << 10;
// For the numbers of real keys of each sequence and, with cuDNN, of real queries.
inline std::int64_t attention_lengths_scratch(const AttentionExtents& a, bool library) {
  return a.segments ? device::scratch_piece((library ? 8 : 4) * a.batch) : 0;
}
inline std::int64_t attention_scratch(const AttentionExtents& a, std::int64_t bytes) {
  const bool library = a.of_library(bytes);
  return attention_lengths_scratch(a, library) + (library ? kLibraryAttentionScratch : 0);
}

// Queries of a tile: on tensor cores, which take 16-bit rows of a multiple of 16 bytes, and
// otherwise.
inline constexpr int kAttentionTensorRows = 64;
constexpr int attention_plain_rows(std::size_t wide) { return wide == 4 ? 16 : 4; }
// Number of elements for the diagonal sums of a tile of queries.
inline std::int64_t attention_diagonals(std::int64_t keys, std::int64_t tile) {
  return round_up(keys, std::int64_t{64}) + tile;
}
// Part of attention: `groups` key heads and the query heads that read them, of `batch` sequences.
struct AttentionPart {
  std::int64_t batch = 0, groups = 0;
};
// Bytes that cuDNN's backward needs for a part on Hopper: gradients of queries in float, to which
// blocks of keys add as they end; a sum for each query; and, if query heads share key heads, 16-bit
// gradients of keys and values for each query head.
inline std::int64_t library_attention_backward_scratch(const AttentionExtents& a,
                                                       AttentionPart part) {
  const std::int64_t heads = part.batch * part.groups * (a.heads / a.kv_heads);
  return device::scratch_piece(4 * heads * a.queries * a.head_size) +
         device::scratch_piece(4 * heads * a.queries) +
         (a.heads > a.kv_heads ? device::scratch_piece(4 * heads * a.keys * a.head_size) : 0) +
         device::scratch_piece(1);
}
// Division of a batch into parts that cuDNN computes one after the other.
struct LibraryAttention {
  AttentionPart part;
  std::int64_t scratch = 0;  // bytes
};
// The largest parts that need at most 640 MiB, or one group of one sequence with at most 2.5 GiB.
// Nothing if cuDNN cannot be used.
inline std::optional<LibraryAttention> library_attention_backward(const AttentionExtents& a) {
  constexpr std::int64_t kUsual = std::int64_t{640} << 20, kMost = std::int64_t{2560} << 20;
  const auto bytes = [&](AttentionPart p) { return library_attention_backward_scratch(a, p); };
  AttentionPart part{a.batch, a.kv_heads};
  while (bytes(part) > kUsual && part.batch * part.groups > 1) {
    std::int64_t& n = part.batch > 1 ? part.batch : part.groups;
    n = n % 2 == 0 ? n / 2 : 1;
  }
  // The log-sum-exps of each part must start at a multiple of 16 bytes.
  const bool aligned = part.batch * part.groups * (a.heads / a.kv_heads) * a.queries % 4 == 0;
  const bool whole = part.batch == a.batch && part.groups == a.kv_heads;
  if (bytes(part) > kMost || !(whole || aligned)) return {};
  return {{part, bytes(part)}};
}
inline std::int64_t attention_backward_scratch(const AttentionExtents& a, std::int64_t bytes,
                                               std::int64_t wide) {
  const bool halves = bytes == 2 && a.head_size % 8 == 0 && !a.visible.beyond.repeats;
  const std::int64_t tile = halves ? kAttentionTensorRows
                                   : attention_plain_rows(static_cast<std::size_t>(wide)),
                     heads = a.batch * a.heads;
  const std::int64_t own =
      attention_lengths_scratch(a, false) +
      (halves ? 2 : 1) * device::scratch_piece(heads * a.queries * wide) +
      (a.bias_gradient ? device::scratch_piece(heads * ceil_div(a.queries, tile) *
                                               attention_diagonals(a.keys, tile) * wide)
                       : 0);
  const auto library = a.of_library(bytes) ? library_attention_backward(a) : std::nullopt;
  return library ? std::max(own, attention_lengths_scratch(a, true) + library->scratch) : own;
}

}  // namespace tfm::kernels
