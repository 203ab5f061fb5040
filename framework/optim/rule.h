#pragma once
// Update rules for reduced and clipped gradients. Each rule has a file in optim/rules/ and is
// listed in the table of optim/rules/registry.cpp.
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

// Groups that Rule::groups() does not have, of parameters without state: those without an update,
// and those of ParameterSpec::evens_load.
constexpr int kNotTrained = -1, kEvensLoad = -2;

// Elements [begin, end) of the flat buffers that this rank updates.
struct StateRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t state_offset = 0;  // of element `begin` in master weights and average
  bool decay = false;             // weight decay applies
  int group = 0;                  // index into Rule::groups(), or one of the above
  std::int64_t group_offset = 0;  // of element `begin` in each of the group's states
};
// The elements of a range that belong to one part, without padding.
struct PartRange : StateRange {
  int part = 0;            // index into ParameterSet::slices()
  std::int64_t first = 0;  // element `begin` of the flat buffers as an element of the slice
  bool counted = false;    // this rank, alone of those that update it, counts it in sums over ranks
  std::int64_t count() const { return end - begin; }
};

// Buffers of this rank, without ownership. All but parameters and master weights hold elements of
// the parameters' accumulation type.
struct FlatBuffers {
  // Laid out by the ParameterSet or, where `sharded`, as master weights are.
  void* parameters = nullptr;
  void* gradients = nullptr;
  graph::Sharded sharded;
  void* state = nullptr;  // of the rule, laid out by ShardLayout
  // fp16: fp32 master weights. bf16: Remainders (core/master_weights.h). Else null.
  void* master = nullptr;
  void* average = nullptr;          // of the weights; null if there is none
  void* lent_parameters = nullptr;  // if parameters are sharded: whole buckets that lend
  // Parameters that this rank borrows, and their gradients.
  void* borrowed_parameters = nullptr;
  void* borrowed_gradients = nullptr;
  void* workspace = nullptr;  // of the rule during an update; its content is not kept

  // Pointers to the elements of a range; average_of() is null if there is no average.
  template <class P>
  Weights<P> weights_of(const StateRange& r) const {
    P* const in_use = static_cast<P*>(parameters) + (sharded.parameters ? r.state_offset : r.begin);
    if constexpr (std::is_same_v<P, bf16>)
      return {static_cast<Remainder*>(master) + r.state_offset, in_use};
    else if constexpr (is_half(dtype_of<P>))
      return {static_cast<float*>(master) + r.state_offset, in_use};
    else
      return in_use;
  }
  template <class T>
  T* gradients_of(const StateRange& r) const {
    return static_cast<T*>(gradients) + (sharded.gradients ? r.state_offset : r.begin);
  }
  template <class T>
  T* average_of(const StateRange& r) const {
    return average ? static_cast<T*>(average) + r.state_offset : nullptr;
  }
};

// Parameters that a rule treats in the same way.
struct ParameterGroup {
  std::vector<std::string> states;  // one number per element; "<name>/<part>" in checkpoints
};
// A state of a whole part, which every rank holds.
struct PartState {
  std::string name;  // "<name>/<part>" in checkpoints
  int part = 0;
  Shape shape;
  std::int64_t offset = 0;  // in the state buffer; set by shard_layout()
};

// Whole parts that the ranks of a pipeline stage update at the same time, one each.
struct PartRound {
  std::vector<int> parts;     // by rank; -1: none
  std::int64_t elements = 0;  // of the largest part
};

// The elements that a rank updates, and the layout of its optimizer state.
struct ShardLayout {
  std::vector<StateRange> ranges;
  std::vector<PartRange> parts;  // the same elements, without padding, ordered by part
  std::int64_t elements = 0;     // size of master weights and of the average
  struct ElementState {
    std::string name;
    int group = 0;
    std::int64_t offset = 0;
  };
  std::vector<ElementState> states;
  std::vector<PartState> part_states;
  std::vector<PartRound> rounds;    // Rule::rounds()
  std::int64_t state_elements = 0;  // size of the state buffer
};

// Arguments of Rule::update().
struct Update {
  device::AnyStream stream;
  DType dtype;  // of the parameters
  const FlatBuffers& flat;
  const StepNumbers* numbers;  // in device memory, as `outcome`
  const StepOutcome* outcome;
  const ShardLayout& shards;
  const nn::ParameterSet& parameters;
  const comm::Mesh& mesh;
  comm::Calls* calls;  // the next calls are those of Rule::collectives()

  // State k of the range's group; null if the group has fewer.
  template <class T>
  T* state(const StateRange& r, int k) const {
    for (const ShardLayout::ElementState& s : shards.states)
      if (s.group == r.group && k-- == 0)
        return static_cast<T*>(flat.state) + s.offset + r.group_offset;
    return nullptr;
  }
};

// The first update of one element, before which its states are zero.
struct FirstUpdate {
  double weight = 0, gradient = 0;  // `gradient`: clipped
  double lr = 0;
  bool decays = false;  // weight decay applies
  // Error of the sum of the gradient and coupled weight decay, relative to its terms.
  double rounding = 0;
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
  // Numbers of update `update`, counted from 1, at learning rate `lr`. `keep` is set by Optimizer.
  virtual UpdateNumbers numbers(std::int64_t update, double lr) const = 0;
  // Bytes of FlatBuffers::workspace; `dtype` is the type of the parameters.
  virtual std::int64_t workspace_bytes(const nn::ParameterSet&, const comm::Layout&,
                                       DType /*dtype*/) const {
    return 0;
  }
  // Bytes of scratch memory that its kernels take on a GPU in addition.
  virtual std::int64_t scratch_bytes(const nn::ParameterSet&) const { return 0; }
  // Collectives of an update, in order; `dtype` is the type of the parameters.
  virtual std::vector<comm::CollectiveCall> collectives(const nn::ParameterSet&,
                                                        const comm::Layout&,
                                                        DType /*dtype*/) const {
    return {};
  }
  // For predictions: numbers that an update reads and writes per element, in addition to one pass
  // over weights, gradients and states; and its matrix products on one rank, in the type of the
  // parameters.
  virtual double further_accesses() const { return 0; }
  virtual std::vector<graph::Work::Product> products(const nn::ParameterSet&,
                                                     const comm::Layout&) const {
    return {};
  }
  // Whether the update of an element depends on its weight, gradient and states alone, and leaves
  // the gradient as it is. For comparisons, such a rule has the weight after the first update.
  virtual bool element_wise() const { return false; }
  virtual double after(const FirstUpdate&) const { internal_error("not element-wise"); }
  // Updates the weights, their average and the rule's states; may overwrite the gradients. If
  // outcome->applied is 0, it changes nothing but gradients and workspace.
  virtual void update(const Update&) const = 0;
};

inline int group_of(const Rule& rule, const nn::ParameterSpec& spec) {
  return !spec.trained ? kNotTrained : spec.evens_load ? kEvensLoad : rule.group_of(spec);
}

// Makes the rule named by optimizer.type. `config.lr`: the peak of the schedule.
std::shared_ptr<const Rule> make_rule(const config::OptimizerConfig& config);
// Moves the biases of experts by `rate` towards an even load (Wang et al. 2024, algorithm 1).
std::shared_ptr<const Rule> make_load_rule(double rate);

}  // namespace tfm::optim
