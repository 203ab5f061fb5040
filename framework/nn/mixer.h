#pragma once
// The two parts of a layer: a mixer moves information between positions, a feed-forward part works
// on each position alone. A part registers its parameters when it is constructed. x and results are
// rows (tokens, C) outside the tensor-parallel region; the residual is not added.
#include <algorithm>
#include <span>

#include "nn/layers.h"

namespace tfm::nn {

// The encoder output as the layers of a decoder read it.
struct Source {
  graph::Value states;        // (B S, C), inside the tensor-parallel region; absent: kept states
  graph::Value segments;      // (B S) int32, negative: padding
  bool right_padded = false;  // padding comes after all real tokens
  Rows rows;
};

// What routers of experts leave in training: terms of the loss, see ops::router_term, tokens
// without room, and loads.
struct RouterTerms {
  struct Term {
    int objective = -1;  // index into StepNumbers::gradient_scale; -1: there is no such term
    graph::Value sum;    // over the layers of this rank
  };
  Term balance, z;
  bool over_batch = false;  // the sum of `balance` is that of ops::sum_routing()
  int layers = 0;           // of this rank, that have added theirs
  // Expert parallelism: BatchShape::expert_bound, and ops::Sent::excess of the layers, absent where
  // there is room for all.
  double bound = 0;
  graph::Value excess = {};
  std::vector<graph::Value> loads;  // ops::router_load of each layer of this rank
};

// What the parts of a layer may read besides x.
struct LayerContext {
  Rows rows;              // of x
  bool training = false;  // with dropout
  // int32, one per token of the micro-batch: document index, negative for padding. Absent: one
  // document, no padding.
  graph::Value q_segments, k_segments;
  graph::Value prefixes;  // int32, one per sequence: so many first positions see each other
  bool right_padded = false;
  // The stack's table of T5's bias (heads of this rank, buckets), and see relative_buckets().
  graph::Value relative_bias;
  std::vector<std::int32_t> buckets;
  std::int64_t capacity = 0;            // of a generation: positions of a sequence
  const Source* source = nullptr;       // of decoders with an encoder
  RouterTerms* router_terms = nullptr;  // of training
};

// What a mixer keeps between the new tokens of a generation: `width` elements on this rank in each
// of its rows.
struct StateSpec {
  enum class Kind : std::uint8_t {
    growing,  // a row for each position, (B rows(), width): new tokens append theirs
    fixed,    // one row for each sequence, (B, width), which new tokens replace; zeros at the start
    source,   // a row for each token of the source, (B S, width): made once, shared by beams
  };
  Kind kind;
  std::int64_t width;
  bool wide = false;        // of the accumulation type
  std::int64_t recent = 0;  // growing: only so many last positions are looked at; 0: all

  // The rows of a sequence; not of kind `source`. `recent`: see ops::cached_attention().
  std::int64_t rows(std::int64_t capacity) const {
    if (kind == Kind::fixed) return 1;
    return recent > 0 ? std::min(capacity, 2 * recent) : capacity;
  }
};

class Mixer {
 public:
  virtual ~Mixer() = default;
  virtual graph::Value record(graph::Recorder& r, graph::Value x, const LayerContext& c) const = 0;

  // Generation: new tokens at positions from StepState::first_position on. `states`: the leaves of
  // states() in order, which are read and updated.
  virtual std::vector<StateSpec> states() const = 0;
  virtual graph::Value record_decode(graph::Recorder& r, graph::Value x, const LayerContext& c,
                                     std::span<const graph::Value> states) const = 0;
  // Makes the states of kind `source`, in order, from Source::states.
  virtual std::vector<graph::Value> record_source(graph::Recorder&, graph::Value) const {
    return {};
  }
};

class Ffn {
 public:
  virtual ~Ffn() = default;
  virtual graph::Value record(graph::Recorder& r, graph::Value x, const LayerContext& c) const = 0;
};

}  // namespace tfm::nn
