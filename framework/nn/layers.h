#pragma once
// Layers: parameters and the ops that use them. A layer registers its parameters when it is
// constructed and records ops when it is called. Collectives are recorded only if layers are
// sharded, so single-rank runs need no special case.
#include <optional>

#include "nn/parameter.h"
#include "ops/ops.h"

namespace tfm::nn {

// Settings of the run that all layers share.
struct Context {
  ParameterSet& parameters;
  int shards = 1, shard = 0;  // ranks along kModelAxes, and the index of this one among them
  bool sequence = false;      // sequence parallelism: outside attention and ffn they split the rows
  double init_std = 0.02;
  bool ring = false;  // ring attention along kSequenceAxes

  bool split() const { return shards > 1; }
  bool split_rows() const { return split() && sequence; }
  // Axes along which a replicated parameter has a term of its gradient on each rank.
  comm::AxisSet partial_where(bool terms) const { return terms ? kModelAxes : comm::AxisSet{}; }
  // Number of this rank's rows outside the tensor-parallel region.
  std::int64_t rows_outside(const Rows& rows) const {
    return split_rows() ? div_exact(rows.tokens(), shards) : rows.tokens();
  }
};

// y = x W^T + b. Its outputs (columns of y) or its inputs may be sharded over ranks.
class Linear {
 public:
  struct Options {
    // Placement of the weight along kModelAxes. shard_rows: y is sharded; shard_columns: x is
    // sharded and y is a term that must be reduced.
    Placement placement = Placement::replicate;
    bool bias = true;
    double std = 0.02;
    bool partial = false;  // replicated weight with a term of the gradient on each rank
    bool hidden = true;    // see ParameterSpec; false for layers of the head
  };
  Linear(Context& c, const std::vector<PartSpec>& outputs, std::int64_t inputs, Options options);
  // Does not add the bias if the inputs are sharded: it is added after the reduction, see bias().
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

// Norms of the heads of queries and keys. Since heads are sharded over tensor ranks, each rank has
// a term of the gradient.
class HeadNorm {
 public:
  // One gain (and shift) per group of heads; `names` are the names of the groups' parts.
  HeadNorm(Context& c, const std::vector<std::string>& names, std::int64_t head_size,
           Norm::Options options);
  // groups: number of heads of each group; a row of x begins with these heads.
  graph::Value operator()(graph::Recorder& r, graph::Value x,
                          std::vector<std::int64_t> groups) const;

 private:
  const ParameterSet* parameters_;
  std::int64_t head_size_;
  int gain_, shift_ = -1;
  Norm::Options options_;
};

// Enters the tensor-parallel region, before a layer whose outputs are sharded.
graph::Value enter_tp_region(graph::Recorder& r, const Context& c, graph::Value x);
// Leaves it, after a layer whose inputs are sharded.
graph::Value leave_tp_region(graph::Recorder& r, const Context& c, graph::Value partial,
                             graph::Value bias = {});
// Region of a rank's rows outside, and of its columns inside the tensor-parallel region.
ops::ActivationRegion outside_tp_region(const Context& c, const Rows& rows, std::int64_t width);
ops::ActivationRegion inside_tp_region(const Context& c, const Rows& rows, std::int64_t full_width);

// Optional inputs of an attention layer, as defined by ops::AttentionInputs and AttentionOptions.
struct AttentionContext {
  // int32, one per token of the micro-batch: document index, negative for padding.
  graph::Value q_segments, k_segments;
  bool right_padded = false;          // padding comes after all real tokens
  graph::Value relative_bias;         // (heads of this rank, buckets); layers may share it
  std::vector<std::int32_t> buckets;  // see relative_buckets()
  graph::Value cache;  // leaf (sequences * capacity, 2 KV D); if given, the rows are new tokens
};

class SelfAttention {
 public:
  struct Options {
    std::int64_t width = 0, heads = 0, kv_heads = 0, head_size = 0;
    bool qkv_bias = true, bias = true, causal = true;
    std::optional<Norm::Options> qk_norm;  // per head, before rotary positions
    double scale = 1, dropout = 0, output_std = 0.02;
    std::vector<double> rotary_frequency;  // (D/2); empty: none
    bool alibi = false;
  };
  SelfAttention(Context& c, const std::string& name, Options options);
  // x and the result are outside the tensor-parallel region. The residual is not added. Dropout is
  // applied in training only.
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

// Attention of a decoder to its encoder: queries from one sequence, keys and values from another
// (Vaswani et al. 2017, 3.2.3).
class CrossAttention {
 public:
  struct Options {
    std::int64_t width = 0, encoder_width = 0, heads = 0, kv_heads = 0, head_size = 0;
    bool qkv_bias = true, bias = true;
    std::optional<Norm::Options> qk_norm;
    double scale = 1, dropout = 0, output_std = 0.02;
  };
  CrossAttention(Context& c, const std::string& name, Options options);
  // Keys and values (source tokens, 2 KV D) of `encoder_states` (source tokens, encoder_width),
  // which has entered the tensor-parallel region, once for all layers.
  graph::Value keys_values(graph::Recorder& r, graph::Value encoder_states) const;
  // x and the result are as those of SelfAttention.
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
