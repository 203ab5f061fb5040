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
  bool ring = false;     // ring attention along kSequenceAxes
  int expert_ranks = 1;  // along kExpertAxes

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
    bool plus_one = false;     // the weight is the gain less 1
    bool eps_outside = false;  // of the root; see kernels/norm.h
    bool partial = false;      // a term of the gradient on each rank, as in Linear
  };
  Norm(Context& c, const std::string& name, std::int64_t width, Options options);
  graph::Value operator()(graph::Recorder& r, graph::Value x) const;

 private:
  const ParameterSet* parameters_;
  std::string name_;
  int gain_, shift_ = -1;
  Options options_;
};

// Norms of queries and keys, which are sharded by heads over tensor ranks: of each head alone, of
// whose gain each rank has a term of the gradient, or over all heads of all ranks.
class HeadNorm {
 public:
  struct Options : Norm::Options {
    bool whole = false;  // over the width of a group; an RMSNorm
  };
  struct Group {
    std::string name;    // of its gain
    std::int64_t heads;  // of all ranks
  };
  HeadNorm(Context& c, const std::vector<Group>& groups, std::int64_t head_size, Options options);
  // A row of x begins with the groups' heads of this rank.
  graph::Value operator()(graph::Recorder& r, graph::Value x) const;

 private:
  const ParameterSet* parameters_;
  std::vector<std::int64_t> heads_;  // of each group on this rank
  std::int64_t head_size_;
  int shards_, gain_, shift_ = -1;
  Options options_;
};

// "ffn" of "layers.3.ffn".
inline std::string last_component(const std::string& name) {
  return name.substr(name.rfind('.') + 1);
}

// Enters the tensor-parallel region, before a layer whose outputs are sharded.
graph::Value enter_tp_region(graph::Recorder& r, const Context& c, graph::Value x);
// Leaves it, after a layer whose inputs are sharded.
graph::Value leave_tp_region(graph::Recorder& r, const Context& c, graph::Value partial,
                             graph::Value bias = {});
// Region of a rank's rows outside, and of its columns inside the tensor-parallel region.
ops::ActivationRegion outside_tp_region(const Context& c, const Rows& rows, std::int64_t width);
ops::ActivationRegion inside_tp_region(const Context& c, const Rows& rows, std::int64_t full_width);
// Names a value outside of the tensor-parallel region, and columns of one inside of it that are
// from `within` on this rank's share of `full_width`.
void name_outside(graph::Recorder& r, const Context& c, const std::string& name, graph::Value v,
                  const Rows& rows);
void name_inside(graph::Recorder& r, const Context& c, const std::string& name, graph::Value v,
                 const Rows& rows, std::int64_t full_width, std::int64_t within = 0);

}  // namespace tfm::nn
