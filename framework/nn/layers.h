#pragma once
// Layers: parameters and how ops compose over them. A layer registers its parameters when made and
// records ops when called. Where layers are not sharded no collective is recorded, so single-rank
// code has no special case.
#include <optional>

#include "nn/parameter.h"
#include "ops/ops.h"

namespace tfm::nn {

// What every layer needs to know about the run.
struct Context {
  ParameterSet& parameters;
  int shards = 1, shard = 0;  // ranks along kModelAxes, and this one's place among them
  bool sequence = false;      // sequence parallelism: outside attention and ffn, these ranks share
                              // out the rows
  double init_std = 0.02;
  bool ring = false;  // attention's keys and values go round the ranks along kSequenceAxes

  bool split() const { return shards > 1; }
  bool split_rows() const { return split() && sequence; }
  // What is replicated, but has a term of its gradient on each of these ranks.
  comm::AxisSet partial_where(bool terms) const { return terms ? kModelAxes : comm::AxisSet{}; }
  // Of this rank, outside the tensor-parallel region.
  std::int64_t rows_outside(const Rows& rows) const {
    return split_rows() ? div_exact(rows.tokens(), shards) : rows.tokens();
  }
};

// y = x W^T + b; ranks may share out its outputs (columns of y) or its inputs.
class Linear {
 public:
  struct Options {
    // Of the weight along kModelAxes. shard_rows: y is split; shard_columns: x is split and y must
    // still be reduced.
    Placement placement = Placement::replicate;
    bool bias = true;
    double std = 0.02;
    bool partial = false;  // replicated, but each rank has a term of the gradient
    bool hidden = true;    // see ParameterSpec; false: part of the head
  };
  Linear(Context& c, const std::vector<PartSpec>& outputs, std::int64_t inputs, Options options);
  // Without bias where the inputs are split: the bias is added after the reduction, see bias().
  graph::Value operator()(graph::Recorder& r, graph::Value x) const;
  graph::Value bias(graph::Recorder& r) const {
    return bias_ < 0 ? graph::Value{} : parameters_->record(r, bias_);
  }

 private:
  const ParameterSet* parameters_;
  int weight_, bias_ = -1;
  bool reduced_;
};

class Norm {
 public:
  struct Options {
    bool rms = false, bias = true;
    double eps = 1e-5;
  };
  Norm(Context& c, const std::string& name, std::int64_t width, Options options);
  graph::Value operator()(graph::Recorder& r, graph::Value x) const;

 private:
  const ParameterSet* parameters_;
  std::string name_;
  int gain_, shift_ = -1;
  Options options_;
};

// Norms of the heads of queries and keys, whose heads the tensor ranks share out: each has a term
// of the gradient.
class HeadNorm {
 public:
  // A gain for each group of heads, whose parts are `names`.
  HeadNorm(Context& c, const std::vector<std::string>& names, std::int64_t head_size,
           Norm::Options options);
  // groups: heads of each in a row of x, which begins with them.
  graph::Value operator()(graph::Recorder& r, graph::Value x,
                          std::vector<std::int64_t> groups) const;

 private:
  const ParameterSet* parameters_;
  std::int64_t head_size_;
  int gain_, shift_ = -1;
  Norm::Options options_;
};

// Between the tensor-parallel region and the rest of a block.
graph::Value enter_tp_region(graph::Recorder& r, const Context& c,
                             graph::Value x);  // before a layer whose outputs are split
graph::Value leave_tp_region(graph::Recorder& r, const Context& c, graph::Value partial,
                             graph::Value bias = {});  // after a layer whose inputs are split
// Dropout places of rows outside and columns inside the tensor-parallel region.
ops::DropoutOrigin outside_tp_region(const Context& c, const Rows& rows, std::int64_t width);
ops::DropoutOrigin inside_tp_region(const Context& c, const Rows& rows, std::int64_t full_width);

// What an attention layer may see beyond its options, as ops::AttentionInputs and AttentionOptions
// define it; all of it optional.
struct AttentionContext {
  graph::Value q_segments,
      k_segments;  // int32, one a token of the micro-batch: documents, negative for padding
  bool right_padded = false;          // padding stands behind all that is real
  graph::Value relative_bias;         // (heads of this rank, buckets); layers may share it
  std::vector<std::int32_t> buckets;  // see relative_buckets()
  graph::Value cache;                 // leaf (sequences capacity, 2 KV D): rows are then new tokens
};

class SelfAttention {
 public:
  struct Options {
    std::int64_t width = 0, heads = 0, kv_heads = 0, head_size = 0;
    bool qkv_bias = true, bias = true, causal = true;
    std::optional<Norm::Options> qk_norm;  // of each head, before rotary positions
    double scale = 1, dropout = 0, output_std = 0.02;
    std::vector<double> rotary_frequency;  // (D/2); empty: none
    bool alibi = false;
  };
  SelfAttention(Context& c, const std::string& name, Options options);
  // x and result outside the tensor-parallel region; result without residual. Dropout acts in
  // training only.
  graph::Value operator()(graph::Recorder& r, graph::Value x, const Rows& rows, bool training,
                          const AttentionContext& attention = {}) const;

 private:
  Context context_;
  std::string name_;
  Options options_;
  Linear qkv_;
  std::optional<HeadNorm> norm_;
  Linear output_;
};

// Queries from one sequence, keys and values from another (Vaswani et al. 2017, 3.2.3): a decoder's
// look at its encoder.
class CrossAttention {
 public:
  struct Options {
    std::int64_t width = 0, encoder_width = 0, heads = 0, kv_heads = 0, head_size = 0;
    bool qkv_bias = true, bias = true;
    std::optional<Norm::Options> qk_norm;
    double scale = 1, dropout = 0, output_std = 0.02;
  };
  CrossAttention(Context& c, const std::string& name, Options options);
  // (source tokens, 2 KV D) of memory (source tokens, encoder_width), which lies inside the split
  // region: it enters once for all layers.
  graph::Value keys_values(graph::Recorder& r, graph::Value memory) const;
  // x and result as SelfAttention's.
  graph::Value operator()(graph::Recorder& r, graph::Value x, graph::Value keys_values,
                          const Rows& target, const Rows& source, bool training,
                          const AttentionContext& attention = {}) const;

 private:
  Context context_;
  std::string name_;
  Options options_;
  Linear query_, kv_;
  std::optional<HeadNorm> query_norm_, key_norm_;
  Linear output_;
};

class FeedForward {
 public:
  struct Options {
    std::int64_t width = 0, hidden = 0;
    kernels::Activation activation = kernels::Activation::gelu_tanh;
    bool gated = false, bias = true;
    double dropout = 0, output_std = 0.02;
  };
  FeedForward(Context& c, const std::string& name, Options options);
  graph::Value operator()(graph::Recorder& r, graph::Value x, const Rows& rows,
                          bool training) const;

 private:
  Context context_;
  std::string name_;
  Options options_;
  Linear up_, down_;
};

}  // namespace tfm::nn
