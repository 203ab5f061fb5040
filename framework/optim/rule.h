#pragma once
// What an optimizer does with reduced and clipped gradients: one file a rule in optim/rules/, all
// of them in the table of optim/rules/registry.cpp.
#include <memory>
#include <string>
#include <vector>

#include "comm/calls.h"
#include "config/config.h"
#include "core/master_weights.h"
#include "core/step_numbers.h"
#include "graph/program.h"
#include "nn/parameter.h"

namespace tfm::optim {

// Memory of this rank; all but parameters and master weights is of the accumulation type of theirs.
struct FlatBuffers {
  // Laid out by the ParameterSet; where they are sharded, as master weights are.
  void* parameters = nullptr;
  void* gradients = nullptr;
  graph::Sharded sharded;
  void* state = nullptr;            // of the rule, as ShardLayout says
  void* master = nullptr;           // null where the parameters themselves are wide; of bf16
                                    // parameters Remainders, see core/master_weights.h
  void* average = nullptr;          // null without one
  void* lent_parameters = nullptr;  // whole, of buckets that lend, where parameters are sharded
  // Of parameters that the rank borrows.
  void* borrowed_parameters = nullptr;
  void* borrowed_gradients = nullptr;
  void* workspace = nullptr;  // of the rule while it updates; holds nothing between updates
};

// Elements [begin, end) of the flat buffers that this rank updates.
struct StateRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t state_offset = 0;  // of the first in master weights and average
  bool decay = false;
  int group = 0;                  // of the rule
  std::int64_t group_offset = 0;  // of the first in each of the group's states
};
// Those of one part, padding left out.
struct PartRange : StateRange {
  int part = 0;            // index into ParameterSet::slices()
  std::int64_t first = 0;  // element of the slice
  bool counted = false;    // of the ranks that update an element, one counts it in sums over all
  std::int64_t count() const { return end - begin; }
};

// Parameters that a rule treats alike.
struct ParameterGroup {
  std::vector<std::string> states;  // kept of each element; "<name>/<part>" in checkpoints
};
// A state of a whole part that every rank holds.
struct PartState {
  std::string name;  // "<name>/<part>" in checkpoints
  int part = 0;
  Shape shape;
  std::int64_t offset = 0;  // in the state buffer, filled by shard_layout()
};

// Whole parts that the ranks which share a layer out take at once, one each.
struct PartRound {
  std::vector<int> parts;     // by rank; -1: none
  std::int64_t elements = 0;  // of the largest
};

// What a rank updates, and where its state lies.
struct ShardLayout {
  std::vector<StateRange> ranges;
  std::vector<PartRange> parts;  // the same elements, without padding, in the order of parts
  std::int64_t elements = 0;     // of master weights and average
  struct ElementState {
    std::string name;
    int group = 0;
    std::int64_t offset = 0;
  };
  std::vector<ElementState> states;
  std::vector<PartState> part_states;
  std::vector<PartRound> rounds;    // of the rule
  std::int64_t state_elements = 0;  // of the state buffer
};

struct Update {
  device::AnyStream stream;
  DType dtype;  // of the parameters
  const FlatBuffers& flat;
  const StepNumbers* numbers;  // in the stream's memory, as the outcome is
  const StepOutcome* outcome;
  const ShardLayout& shards;
  const nn::ParameterSet& parameters;
  const comm::Mesh& mesh;
  comm::Calls* calls;  // those of Rule::collectives() come next

  template <class P>
  Weights<P> weights(const StateRange& r) const {
    P* const in_use =
        static_cast<P*>(flat.parameters) + (flat.sharded.parameters ? r.state_offset : r.begin);
    if constexpr (std::is_same_v<P, bf16>)
      return {static_cast<Remainder*>(flat.master) + r.state_offset, in_use};
    else if constexpr (is_half(dtype_of<P>))
      return {static_cast<float*>(flat.master) + r.state_offset, in_use};
    else
      return in_use;
  }
  template <class T>
  T* gradients(const StateRange& r) const {
    return static_cast<T*>(flat.gradients) + (flat.sharded.gradients ? r.state_offset : r.begin);
  }
  template <class T>
  T* average(const StateRange& r) const {
    return flat.average ? static_cast<T*>(flat.average) + r.state_offset : nullptr;
  }
  // State k of the range's group; null where the group has fewer.
  template <class T>
  T* state(const StateRange& r, int k) const {
    for (const ShardLayout::ElementState& s : shards.states)
      if (s.group == r.group && k-- == 0)
        return static_cast<T*>(flat.state) + s.offset + r.group_offset;
    return nullptr;
  }
};

class Rule {
 public:
  virtual ~Rule() = default;
  virtual std::vector<ParameterGroup> groups() const = 0;
  virtual int group_of(const nn::ParameterSpec&) const { return 0; }
  virtual std::vector<PartState> part_states(const nn::ParameterSet&) const { return {}; }
  virtual std::vector<PartRound> rounds(const nn::ParameterSet&, const comm::Layout&) const {
    return {};
  }
  // Of update `update`, counted from 1, at rate `lr`. The decay of the average is not the rule's.
  virtual UpdateNumbers numbers(std::int64_t update, double lr) const = 0;
  // Bytes of FlatBuffers::workspace, and what an update exchanges; `dtype`: of the gradients.
  virtual std::int64_t workspace_bytes(const nn::ParameterSet&, const comm::Layout&,
                                       DType /*dtype*/) const {
    return 0;
  }
  // Scratch memory that its kernels take on a GPU, besides.
  virtual std::int64_t scratch_bytes(const nn::ParameterSet&) const { return 0; }
  virtual std::vector<comm::CollectiveCall> collectives(const nn::ParameterSet&,
                                                        const comm::Layout&,
                                                        DType /*dtype*/) const {
    return {};
  }
  // For predictions: about how many numbers an update reads and writes for each element besides
  // one pass over weights, gradients and states; its matrix products on one rank.
  virtual double further_accesses() const { return 0; }
  virtual std::vector<graph::Work::Product> products(const nn::ParameterSet&,
                                                     const comm::Layout&) const {
    return {};
  }
  // Changes the weights and their average; gradients are free to be
  // overwritten. Where outcome->applied is 0, nothing but the gradients and the workspace changes.
  virtual void update(const Update&) const = 0;
};

// The rule that optimizer.type names.
std::shared_ptr<const Rule> make_rule(const config::OptimizerConfig& config);

}  // namespace tfm::optim
