#pragma once
// Every op of the framework. Activations are (N, width) with N = tokens of the micro-batch (of this
// rank's part of them under sequence parallelism). Widths are named as in docs/architecture.md: C
// model, H heads, D head size, F ffn, V vocabulary.
#include "core/rows.h"
#include "graph/recorder.h"
#include "kernels/activation.h"

namespace tfm::ops {

// y (N, out) = scale * x (N, in) W^T + b, W (out, in), b (out) or absent.
graph::Value linear(graph::Recorder& r, graph::Value x, graph::Value weight, graph::Value bias = {},
                    double scale = 1);

// The first row of each sequence, or of this rank's first part of it: (N, C) -> (B, C).
graph::Value first_rows(graph::Recorder& r, graph::Value x, const Rows& rows);

// LayerNorm or RMSNorm over the last axis; shift absent for RMSNorm or without biases.
struct NormOptions {
  double eps = 1e-5;
  bool rms = false;
};
graph::Value norm(graph::Recorder& r, graph::Value x, NormOptions options, graph::Value gain,
                  graph::Value shift = {});

// The norm of each head of a row by itself (Henry et al. 2020; Dehghani et al. 2023): groups[g]
// heads have row g of gain and shift (groups, D), which are vectors; what is behind them is copied.
struct HeadNormOptions {
  NormOptions norm;
  std::int64_t head_size = 0;
  std::vector<std::int64_t> groups;
};
graph::Value head_norm(graph::Recorder& r, graph::Value x, HeadNormOptions options,
                       graph::Value gain, graph::Value shift = {});

// y = act(x), or with x = [gate | up]: act(gate) * up.
graph::Value activation(graph::Recorder& r, graph::Value x, kernels::Activation kind, bool gated);

// Which elements of the global (all tokens, cols_total) tensor a rank's rows and columns are:
// dropout masks follow from it.
struct DropoutOrigin {
  Rows rows;                    // of the micro-batch
  std::int64_t row_offset = 0;  // of this rank's among them (sequence parallelism)
  std::int64_t col_offset = 0, cols_total = 0;
};
// y = residual + dropout(x); residual may be absent. The mask's stream is the node's qualified
// name.
graph::Value dropout_add(graph::Recorder& r, graph::Value x, graph::Value residual, double p,
                         const DropoutOrigin& place);

// Rows of the table named by ids (N) int32; ids outside [vocab_begin, vocab_end) give zero rows.
struct EmbeddingOptions {
  std::int64_t vocab_begin = 0, vocab_end = 0;
  double scale = 1;
  std::int64_t padding_idx = -1;  // rows of this id pass no gradient
};
graph::Value embedding(graph::Recorder& r, graph::Value ids, graph::Value table,
                       EmbeddingOptions options);

// x + table[first + position of the row]; the table (>= first + T, C) is a parameter (learned) or a
// constant (sinusoidal).
graph::Value add_position(graph::Recorder& r, graph::Value x, graph::Value table,
                          const DropoutOrigin& place, std::int64_t first = 0);

// Rotates the first `heads` heads of each row of x (rotate-half form).
struct RotaryOptions {
  std::int64_t heads = 0, head_size = 0;
  std::vector<double> frequency;  // (D/2)
  Rows rows;
};
graph::Value rotary(graph::Recorder& r, graph::Value x, RotaryOptions options);

// Attention of N = B T queries to M = B S keys; result (N, H D). Self-attention reads all three
// from one fused row. Key s is visible to query t if k_segments[s] >= 0 (negative: padding), if
// q_segments[t] == k_segments[s] (packed documents), and, when causal, if s <= t + S - T. A query
// that sees no key gets zeros. q and kv must have no other reader that wants a gradient.
// Of ranks that share out the sequences (core/rows.h) each has its rows of q and kv; keys and
// values are gathered when they are needed, or passed round, in forward and again in backward.
struct AttentionInputs {
  graph::Value q;   // (N, H D), or without kv (N, (H + 2 KV) D): queries, then keys, then values
  graph::Value kv;  // (M, 2 KV D): keys, then values
  graph::Value q_segments, k_segments;  // int32 (B T), (B S) of whole sequences, or absent: all
                                        // equal, no padding; q_segments only beside k_segments
  graph::Value relative_bias;  // (H of this rank, buckets) or absent: T5's bias (Raffel et al.
                               // 2020), added to the scaled scores
};
struct AttentionOptions {
  std::int64_t heads = 0, kv_heads = 0, head_size = 0;
  std::int64_t queries = 0, keys = 0;  // T and S of one sequence
  double scale = 1;
  bool causal = true;
  bool right_padded = false;  // in every sequence negative k_segments stand behind the others
  double dropout = 0;
  std::int64_t head_offset = 0, heads_total = 0;  // of this rank
  std::vector<double> alibi_slopes;  // (H of this rank) or empty: score -= slope * |t + S - T - s|
                                     // (Press et al. 2022)
  std::vector<std::int32_t>
      buckets;  // (T + S - 1), beside relative_bias: [s - t + T - 1] is the bucket of that distance
  SequenceShare share;  // of queries and keys
  bool ring = false;    // of these ranks: each passes keys and values on to the next one
};
graph::Value attention(graph::Recorder& r, const AttentionInputs& in, AttentionOptions options);

// Causal self-attention of T new tokens a sequence, from StepState::first_position on; forward
// only. qkv (B T, (H + 2 KV) D) is fused as above; its keys and values are written into the leaf
// `cache` (B capacity, 2 KV D), whose earlier positions are seen, too. Options: keys is the
// capacity, buckets (T + capacity - 1) with [distance + capacity - 1] the bucket of that distance
// of positions.
graph::Value cached_attention(graph::Recorder& r, graph::Value qkv, graph::Value cache,
                              graph::Value relative_bias, AttentionOptions options);

// Summed loss (1) f64 of the rows whose label (N) int32 is >= 0, from hidden states and the output
// embedding, in chunks of rows: at most chunk x V logits exist. In training the logits' gradient
// takes their place and goes straight into both products.
struct CrossEntropyOptions {
  std::int64_t vocab_size = 0, vocab_begin = 0, vocab_end = 0;
  int shards = 1;  // ranks of the tensor axis, which share out the vocabulary
  double smoothing = 0;
  double scale = 1;             // of the logits before the bias
  int objective = 0;            // of StepNumbers::gradient_scale
  double labelled = 1;          // share of the rows with a label that is expected: for predictions
  std::int64_t chunk_rows = 0;  // 0: chosen from the sizes
  // Without smoothing, forward only: a second output (1) f64, of how many of these rows the label
  // has the highest logit (of equal ones the lowest id).
  bool accuracy = false;
};
graph::Value linear_cross_entropy(graph::Recorder& r, graph::Value x, graph::Value weight,
                                  graph::Value bias, graph::Value labels,
                                  CrossEntropyOptions options);

// Conjugate pairs over the tensor axis: what one does forward, its partner does backward.
graph::Value copy_to_tp_region(graph::Recorder& r, graph::Value x);  // copy | all_reduce
graph::Value reduce_from_tp_region(graph::Recorder& r, graph::Value x,
                                   graph::Value bias = {});  // all_reduce (+ bias) | copy
graph::Value gather_sequence(graph::Recorder& r, graph::Value x,
                             int ranks);  // all_gather rows | reduce_scatter
graph::Value scatter_sequence(graph::Recorder& r, graph::Value x, int ranks,
                              graph::Value bias = {});  // reduce_scatter rows (+ bias) | all_gather

// Between the stages of a pipeline, by their places along its axis. `tag`: even, one for each pair
// of calls between two ranks; the gradient of what is sent comes back under the next one.
void send(graph::Recorder& r, graph::Value x, int to, int tag);  // after all its uses here
graph::Value receive(graph::Recorder& r, const Shape& shape, int from, int tag);
// Recorded before all uses of a parameter: the whole gradients of those that borrow it are sent to
// its owner, where they are added to its own.
void borrowed_gradient(graph::Recorder& r, graph::Value weight, int owner, int tag);
void lent_gradient(graph::Recorder& r, graph::Value weight, const std::vector<int>& borrowers,
                   int tag);

}  // namespace tfm::ops
