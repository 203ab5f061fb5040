#pragma once
// Interface of ops: forward, backward, and declarations of all that the planner must know about
// them.
#include <string_view>
#include <vector>

#include "graph/exec.h"

namespace tfm::graph {

enum class Phase : std::uint8_t { forward, recompute, backward, gather, reduce };
std::string_view name_of(Phase p);

// Source and destination of a collective; the same tensor for an all-reduce.
struct Exchanged {
  Tensor in, out;
};

// Cost of one pass of an op, in addition to reading each input and writing each result once; used
// by predictions and benchmarks. Elements are of the recording's dtype.
struct Work {
  struct Product {  // (m,k) times (k,n), `count` times
    std::int64_t m, n, k, count = 1;
    bool sum = false;  // gradient of a parameter: the result has the accumulation type
    double flops() const {
      return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
             static_cast<double>(count);
    }
  };
  std::vector<Product> products;
  double attention_flops = 0;            // of scores of keys whose positions queries see
  double masked_flops = 0;               // of the other scores
  std::int64_t head_size = 0, keys = 0;  // of attention; keys per sequence
  std::int64_t extra_elements = 0;       // further elements read or written
  // Inputs of which, and of whose gradients, only as many elements are touched as the output has.
  OperandSet sparse_inputs;
  bool kernel_per_gradient = false;  // backward: one kernel per gradient, each reads all operands
  int kernels = 1;                   // kernel launches; 0: the op moves no data itself
  double flops() const {
    double sum = attention_flops;
    for (const Product& p : products) sum += p.flops();
    return sum;
  }
  Work share(double s) const;  // fraction s of the work, which must have no products
};

// Inputs and outputs that backward() reads.
struct Saved {
  OperandSet inputs, outputs;
};

class Op {
 public:
  virtual ~Op() = default;
  virtual std::string_view kind() const = 0;
  virtual Saved saved() const = 0;
  // Cheap to recompute compared with storing its outputs: recomputed under `recompute: selective`.
  virtual bool cheap() const { return false; }
  // On CPUs, recomputing its first output, of this type, is as fast as reading it from memory.
  // There it is recomputed under any `recompute` if only backward passes of the same scope need it
  // kept.
  virtual bool free_on_cpus(DType) const { return false; }
  // In training, backward() also does the forward pass: it writes outputs and gradients at once.
  // Such an op has no consumers.
  virtual bool forward_with_backward() const { return false; }
  // A term of the loss, of which backward() begins without a gradient of the output: it is scaled
  // by StepNumbers.
  virtual bool makes_loss() const { return false; }
  // Inputs at whose zeros the gradient jumps.
  virtual OperandSet kinks() const { return {}; }
  // Inputs whose gradient equals that of the first output. The planner lets them share its memory
  // where possible; their slots are then null.
  virtual OperandSet passes_gradient() const { return {}; }
  virtual std::int64_t workspace_bytes(Phase) const { return 0; }
  // Scratch memory of its kernels on a GPU (kernels/scratch.h) for a recording of type `dtype`.
  virtual std::int64_t scratch_bytes(Phase, DType /*dtype*/) const { return 0; }
  // Exchanges values and their gradients with another rank: it has a backward pass even if no
  // gradient is wanted on this rank.
  virtual bool crosses_ranks() const { return false; }
  // Its backward pass uses accumulated gradients: only the last micro-batch of a step runs it.
  virtual bool of_whole_gradients() const { return false; }
  // The workspace is reserved for this pass, during a run and between runs.
  virtual bool keeps_workspace(Phase) const { return false; }
  // Backward can run twice: first for the gradients of activations, later for those of parameters.
  virtual bool parameters_apart() const { return false; }
  virtual Work work(Phase) const { return {}; }
  virtual void forward(Exec&) const = 0;
  virtual void backward(Exec&) const = 0;

  // Collectives of a pass, which ops do not run themselves. A pass with n of them has n + 1 stages;
  // after stage k the program runs collective k on the tensors that exchanged() returns.
  virtual std::vector<comm::CollectiveCall> exchanges(Phase) const { return {}; }
  virtual Exchanged exchanged(Phase, std::size_t /*k*/, const Exec&) const {
    internal_error(std::string(kind()) + " exchanges nothing");
  }
  virtual void stage(Phase phase, std::size_t /*k*/, Exec& e) const {
    phase == Phase::backward ? backward(e) : forward(e);
  }
  // Computation that can overlap collective k, whose `in` it may read, and its share of the pass's
  // work; 0: none.
  virtual void beside(Phase, std::size_t /*k*/, Exec&) const {
    internal_error(std::string(kind()) + " computes nothing beside a collective");
  }
  virtual double share_beside(Phase, std::size_t /*k*/) const { return 0; }
};

// Base of ops that communicate in at least one pass.
class StagedOp : public Op {
 public:
  void forward(Exec&) const final { internal_error(std::string(kind()) + " runs in stages"); }
  void backward(Exec&) const final { internal_error(std::string(kind()) + " runs in stages"); }
  std::vector<comm::CollectiveCall> exchanges(Phase) const override = 0;
  Exchanged exchanged(Phase, std::size_t k, const Exec&) const override = 0;
  void stage(Phase, std::size_t k, Exec&) const override = 0;
};

}  // namespace tfm::graph
