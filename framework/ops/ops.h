#pragma once
// The ops of every model; those of losses, experts and other mixers than attention have headers of
// their own. Activations are (N, width), where N is the number of this rank's tokens of the
// micro-batch. Widths are named as in docs/glossary.md: C model, H heads, KV key/value heads, D
// head size, F ffn, V vocabulary.
#include "core/rows.h"
#include "core/visibility.h"
#include "graph/recorder.h"
#include "kernels/activation.h"
#include "kernels/pool.h"

namespace tfm::ops {

// y (N, out) = scale * x (N, in) W^T + b with W (out, in) and b (out) or absent.
graph::Value linear(graph::Recorder& r, graph::Value x, graph::Value weight, graph::Value bias = {},
                    double scale = 1);

// A summary of each sequence, (N, C) -> (B, C), by the rows whose mask, (B T) int32 of whole
// sequences, is not negative; all rows without one. Zeros for a sequence without rows, and for a
// first row that another rank has.
graph::Value pool(graph::Recorder& r, graph::Value x, kernels::Pool kind, const Rows& rows,
                  graph::Value mask = {});

// LayerNorm or RMSNorm over the last axis; `shift` is absent for RMSNorm and for norms without
// bias.
struct NormOptions {
  double eps = 1e-5;
  bool rms = false;
  bool plus_one = false;     // multiplies by 1 + gain
  bool eps_outside = false;  // of the root; see kernels/norm.h
};
graph::Value norm(graph::Recorder& r, graph::Value x, NormOptions options, graph::Value gain,
                  graph::Value shift = {});

// Norm of each head of a row separately (Henry et al. 2020; Dehghani et al. 2023). The first
// groups[0] heads use row 0 of gain and shift, the next groups[1] heads row 1, and so on; gain and
// shift are vectors of groups * D elements. Columns after these heads are copied.
struct HeadNormOptions {
  NormOptions norm;
  std::int64_t head_size = 0;
  std::vector<std::int64_t> groups;
};
graph::Value head_norm(graph::Recorder& r, graph::Value x, HeadNormOptions options,
                       graph::Value gain, graph::Value shift = {});

// RMSNorm over groups of columns, of each of which `shards` ranks along `axes` have an equal part:
// groups[0] columns of this rank, then groups[1], and so on. The gain has an element for each of
// them. Columns after the groups are copied.
struct WidthNormOptions {
  double eps = 1e-5;
  std::vector<std::int64_t> groups;
  int shards = 1;
  comm::AxisSet axes = {};
};
graph::Value width_norm(graph::Recorder& r, graph::Value x, WidthNormOptions options,
                        graph::Value gain);

// y = c tanh(x / c) (Gemma Team 2024, "Gemma 2", 2.1).
graph::Value softcap(graph::Recorder& r, graph::Value x, double c);

// y = act(x); if gated, x = [gate | up] and y = act(gate) * up.
graph::Value activation(graph::Recorder& r, graph::Value x, kernels::Activation kind, bool gated);

// Position of a rank's rows and columns in the global (all tokens, cols_total) tensor, which
// determines dropout masks and the positions of rows.
struct ActivationRegion {
  Rows rows;                    // rows of the micro-batch
  std::int64_t row_offset = 0;  // of this rank's first row among them (sequence parallelism)
  std::int64_t col_offset = 0, cols_total = 0;
  graph::Value slot =
      {};  // of routed rows (ops/experts.h), `top_k` of each of `rows`; absent: rows
  graph::Value global = {};  // by slot, see kernels::DropoutPlace
  std::int64_t top_k = 1;
};
// y = residual + dropout(x); residual may be absent. The mask's random stream is that of the node's
// qualified name.
graph::Value dropout_add(graph::Recorder& r, graph::Value x, graph::Value residual, double p,
                         const ActivationRegion& place);
// y = x times a random factor in [1 - range, 1 + range) for each element, a stream as above.
graph::Value jitter(graph::Recorder& r, graph::Value x, double range,
                    const ActivationRegion& place);

// scale * table[ids] for ids (N) int32; ids outside [vocab_begin, vocab_end) give zero rows.
struct EmbeddingOptions {
  std::int64_t vocab_begin = 0, vocab_end = 0;
  double scale = 1;
  std::int64_t padding_idx = -1;  // id whose rows pass no gradient
  // Only `rows` of the ids, from `first_row` on; 0: all.
  std::int64_t first_row = 0, rows = 0;
};
graph::Value embedding(graph::Recorder& r, graph::Value ids, graph::Value table,
                       EmbeddingOptions options);

// x + table[first + position of the row]. The table has at least first + T rows of C elements; it
// is a parameter (learned) or a constant (sinusoidal).
graph::Value add_position(graph::Recorder& r, graph::Value x, graph::Value table,
                          const ActivationRegion& place, std::int64_t first = 0);

// Rotary positions (rotate-half form) for the first R columns of the first `heads` heads of each
// row of x, which are multiplied by `factor`, too.
struct RotaryOptions {
  std::int64_t heads = 0, head_size = 0;
  std::vector<double> frequency;  // (R/2)
  double factor = 1;
  Rows rows;
};
graph::Value rotary(graph::Recorder& r, graph::Value x, const RotaryOptions& options);

// Attention of N = B T queries to M = B S keys; result (N, H D). Self-attention reads queries, keys
// and values from one fused row. Query t sees key s if k_segments[s] >= 0 (negative: padding),
// q_segments[t] == k_segments[s] (packed documents) and position t + S - T sees position s
// (AttentionOptions::visible). A query that sees no key gets zeros. No other op that wants a
// gradient may read q or kv. Under context parallelism (core/rows.h) each rank has its rows of q
// and kv. Keys and values are gathered or passed around a ring, in forward and again in backward.
struct AttentionInputs {
  graph::Value q;   // (N, H D), or without kv (N, (H + 2 KV) D): queries, then keys, then values
  graph::Value kv;  // (M, 2 KV D): keys, then values
  // int32 (B T) and (B S) of whole sequences. Absent: one document, no padding. q_segments requires
  // k_segments.
  graph::Value q_segments, k_segments;
  // int32 (B) or absent: so many first positions of a sequence see each other, too, whatever
  // AttentionOptions::visible, which has no landmarks.
  graph::Value prefixes;
  // (H of this rank, buckets) or absent: T5's bias, added to the scaled scores (Raffel et al.
  // 2020).
  graph::Value relative_bias;
  graph::Value sinks;  // (H of this rank) or absent: see kernels/attention_sinks.h
};
struct AttentionOptions {
  std::int64_t heads = 0, kv_heads = 0, head_size = 0;
  std::int64_t queries = 0, keys = 0;  // T and S of one sequence
  double scale = 1;
  double softcap = 0;  // of scores, before a bias: softcap * tanh(score / softcap); 0: none
  Visibility visible = Visibility::causal();
  bool right_padded = false;  // negative k_segments come last in every sequence
  double dropout = 0;
  std::int64_t head_offset = 0, heads_total = 0;  // this rank's first head, heads of all ranks
  // (H of this rank) or empty: score -= slope * |t + S - T - s| (Press et al. 2022).
  std::vector<double> alibi_slopes;
  // (T + S - 1), with relative_bias: [s - t + T - 1] is the bucket of distance s - t.
  std::vector<std::int32_t> buckets;
  SequenceShare share;  // of queries and keys
  bool ring = false;    // ranks pass keys and values around a ring instead of gathering them
  bool values_are_keys = false;  // of a cache: rows have keys alone

  // Width of a row of queries; of keys and values.
  std::int64_t q_width() const { return heads * head_size; }
  std::int64_t kv_width() const { return (values_are_keys ? 1 : 2) * kv_heads * head_size; }
};
graph::Value attention(graph::Recorder& r, const AttentionInputs& in, AttentionOptions options);

// Self-attention of T new tokens per sequence, at positions from StepState::first_position on, to
// these and earlier positions, as far as options.visible goes, which is causal; forward only. qkv
// (B T, (H + 2 KV) D) is fused as above. Keys and values are written to the leaf `cache` (B
// capacity, 2 KV D), or, where values are keys, (B capacity, KV D). options.keys is the capacity:
// all positions, or, where queries look at the last n positions, 2 n rows that earlier ones leave;
// options.buckets has T + capacity - 1 elements, [distance + capacity - 1] being the bucket of a
// distance between positions.
graph::Value cached_attention(graph::Recorder& r, graph::Value qkv, graph::Value cache,
                              graph::Value relative_bias, graph::Value sinks,
                              AttentionOptions options);

// Conjugate pairs over the tensor axis, as forward | backward: what one does in forward, its
// partner does in backward.
graph::Value copy_to_tp_region(graph::Recorder& r, graph::Value x);  // copy | all_reduce
// all_reduce (+ bias) | copy
graph::Value reduce_from_tp_region(graph::Recorder& r, graph::Value x, graph::Value bias = {});
// all_gather rows | reduce_scatter
graph::Value gather_sequence(graph::Recorder& r, graph::Value x, int ranks);
// reduce_scatter rows (+ bias) | all_gather
graph::Value scatter_sequence(graph::Recorder& r, graph::Value x, int ranks,
                              graph::Value bias = {});

// Messages between pipeline ranks, which are given by their index along the pipeline axis. `tag` is
// even and unique to a pair of send and receive between two ranks; the gradient returns with tag
// + 1. A value must be sent after all its uses on this rank.
void send(graph::Recorder& r, graph::Value x, int to, int tag);
graph::Value receive(graph::Recorder& r, const Shape& shape, int from, int tag);
// To be recorded before all uses of a parameter that several stages use: in backward, each borrower
// sends its accumulated gradient to the owner, which adds it to its own.
void borrowed_gradient(graph::Recorder& r, graph::Value weight, int owner, int tag);
void lent_gradient(graph::Recorder& r, graph::Value weight, const std::vector<int>& borrowers,
                   int tag);

}  // namespace tfm::ops
