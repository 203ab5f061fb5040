#pragma once
// Every op of the framework. Activations are (N, width) with N = tokens of the micro-batch (of this rank's part of them under
// sequence parallelism). Widths named in the alphabet of docs/style.md: C model, H heads, D head size, F ffn, V vocabulary.
#include "graph/recorder.h"
#include "kernels/activation.h"

namespace tfm::ops {

// y (N, out) = x (N, in) W^T + b, W (out, in), b (out) or absent.
Value linear(Recorder& r, Value x, Value weight, Value bias = {});

// LayerNorm or RMSNorm over the last axis; shift absent for RMSNorm or without biases.
struct NormOptions {
  double eps = 1e-5;
  bool rms = false;
};
Value norm(Recorder& r, Value x, NormOptions options, Value gain, Value shift = {});

// y = act(x), or with x = [gate | up]: act(gate) * up.
Value activation(Recorder& r, Value x, kernels::Activation kind, bool gated);

// Which elements of the global (all tokens, cols_total) tensor a rank's rows and columns are: dropout masks follow from it.
struct Place {
  std::int64_t sequence_length = 0;  // tokens of one sequence
  std::int64_t row_offset = 0;       // of this rank's rows within the micro-batch (sequence parallelism)
  std::int64_t col_offset = 0, cols_total = 0;
};
// y = residual + dropout(x); residual may be absent. The mask's stream is the node's qualified name.
Value dropout_add(Recorder& r, Value x, Value residual, double p, const Place& place);

// Rows of the table named by ids (N) int32; ids outside [vocab_begin, vocab_end) give zero rows.
struct EmbeddingOptions {
  std::int64_t vocab_begin = 0, vocab_end = 0;
  double scale = 1;
};
Value embedding(Recorder& r, Value ids, Value table, EmbeddingOptions options);

// x + table[position of the row]; the table (>= T, C) is a parameter (learned) or a constant (sinusoidal).
Value add_position(Recorder& r, Value x, Value table, const Place& place);

// Rotates the first `heads` heads of each row of x (rotate-half form).
struct RotaryOptions {
  std::int64_t heads = 0, head_size = 0;
  std::vector<double> frequency;  // (D/2)
  std::int64_t sequence_length = 0;
};
Value rotary(Recorder& r, Value x, RotaryOptions options);

// Self-attention. qkv (N, (H + 2 KV) D): queries, then keys, then values; result (N, H D).
struct AttentionOptions {
  std::int64_t heads = 0, kv_heads = 0, head_size = 0, sequence_length = 0;
  double scale = 1;
  bool causal = true;
  double dropout = 0;
  std::int64_t head_offset = 0, heads_total = 0;  // of this rank
  std::vector<double> alibi_slopes;               // (H of this rank) or empty
};
Value attention(Recorder& r, Value qkv, AttentionOptions options);

// Summed loss (1) f64 of the rows whose label (N) int32 is >= 0, from hidden states and the output embedding, in chunks of rows:
// at most chunk x V logits exist. In training the logits' gradient takes their place and goes straight into both products.
struct CrossEntropyOptions {
  std::int64_t vocab_size = 0, vocab_begin = 0, vocab_end = 0;
  double smoothing = 0;
  std::int64_t chunk_rows = 0;  // 0: chosen from the sizes
};
Value linear_cross_entropy(Recorder& r, Value x, Value weight, Value bias, Value labels, CrossEntropyOptions options);

// Conjugate pairs over the tensor axis: what one does forward, its partner does backward.
Value copy_to_tensor(Recorder& r, Value x);                             // copy | all_reduce
Value reduce_from_tensor(Recorder& r, Value x, Value bias = {});        // all_reduce (+ bias) | copy
Value gather_sequence(Recorder& r, Value x, int ranks);                 // all_gather rows | reduce_scatter
Value scatter_sequence(Recorder& r, Value x, int ranks, Value bias = {});  // reduce_scatter rows (+ bias) | all_gather

}  // namespace tfm::ops
