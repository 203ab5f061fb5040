#pragma once
// What an op is: forward, backward, and a declaration of everything the planner needs to know about
// them.
#include <array>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "comm/mesh.h"
#include "core/step_numbers.h"
#include "core/tensor.h"
#include "device/stream.h"
#include "graph/tensors.h"

namespace tfm::graph {

// A gradient to be written; null if it is not needed. The planner sets `accumulate`.
struct GradSlot {
  Tensor tensor;
  bool accumulate = false;
  explicit operator bool() const { return static_cast<bool>(tensor); }
};

// Which of a step's micro-batches a run is. The first one gathers updated parameters, the last one
// reduces gradients.
struct MicroBatch {
  bool first = true, last = true;
};

// Host-side state of one run of the program; values that change from step to step are in
// StepNumbers.
struct StepState {
  std::uint64_t seed = 0;
  std::int64_t first_position =
      0;  // of each sequence's first row: above 0 where a sequence is made token by token
  bool accumulate_parameters = false;  // a later micro-batch: parameter gradients are added to, and
                                       // parameters have been gathered since their update
  bool reduce_gradients = false;  // the last micro-batch: whole buckets are reduced as they become
                                  // final
  // By objective: how many rows a device computes of those that may have a label, which holds all
  // that have one (kernels/packed_rows.h). 0: not known, all. CPUs count.
  std::array<std::int64_t, kMostObjectives> packed_rows{};
  MicroBatch micro_batch() const { return {!accumulate_parameters, reduce_gradients}; }
};

struct ExecContext {
  device::AnyStream stream;
  const comm::Mesh* mesh = nullptr;
  StepState state;
  const StepNumbers* numbers =
      nullptr;  // in the stream's memory; null: all zero, gradients unscaled
  // Where a computation is compared with one of less precision: rounds, on the CPU, what a fused op
  // keeps to itself and ops of their own would write. Null: nothing is rounded.
  std::function<void(Tensor)> round_inner = nullptr;
};

// The tensors of one step of the program, as the running op sees them.
class Exec {
 public:
  Exec(const ExecContext& context, std::span<const Tensor> in, std::span<const Tensor> out,
       std::span<const Tensor> grad_out, std::span<const GradSlot> grad_in, std::byte* workspace)
      : context(context),
        in_(in),
        out_(out),
        grad_out_(grad_out),
        grad_in_(grad_in),
        workspace_(workspace) {}

  const ExecContext& context;

  // By the op's names. Without memory: an input that was not given; in backward, what the op did
  // not declare to be saved and gradients that are not wanted.
  const Tensor& in(TensorName auto name) const { return in_[static_cast<std::size_t>(name)]; }
  const Tensor& out(TensorName auto name) const { return out_[static_cast<std::size_t>(name)]; }
  const Tensor& grad_out(TensorName auto name) const {
    return grad_out_[static_cast<std::size_t>(name)];
  }
  const GradSlot& grad_in(TensorName auto name) const {
    return grad_in_[static_cast<std::size_t>(name)];
  }
  std::byte* workspace() const { return workspace_; }
  const StepState& state() const { return context.state; }
  const StepNumbers* numbers() const { return context.numbers; }
  device::AnyStream stream() const { return context.stream; }

 private:
  std::span<const Tensor> in_, out_, grad_out_;
  std::span<const GradSlot> grad_in_;
  std::byte* workspace_;
};

enum class Phase : std::uint8_t { forward, recompute, backward, gather, reduce };
std::string_view name_of(Phase p);

// The tensors of a collective: of an all_reduce they are the same.
struct Exchanged {
  Tensor in, out;
};

// The work of one pass of an op besides reading each input and writing each result once; used by
// predictions and benchmarks. Elements are of the recording's real type.
struct Work {
  struct Product {  // (m,k) (k,n), `count` times
    std::int64_t m, n, k, count = 1;
    bool sum = false;  // added to a result of the accumulation type
    double flops() const {
      return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
             static_cast<double>(count);
    }
  };
  std::vector<Product> products;
  double attention_flops = 0;            // causal: of scores that are seen
  double masked_flops = 0;               // of those that are not
  std::int64_t head_size = 0, keys = 0;  // of attention: keys of a sequence
  std::int64_t extra_elements = 0;       // additional elements moved
  Tensors sparse_inputs;  // inputs of which, and of whose gradients, an op touches as many elements
                          // as its output has
  bool kernel_per_gradient = false;  // backward has a kernel for each gradient that it writes,
                                     // which reads what all of them read
  int kernels = 1;                   // 0: moves nothing itself
  double flops() const {
    double sum = attention_flops;
    for (const Product& p : products) sum += p.flops();
    return sum;
  }
  Work share(double s) const;  // of a pass without products
};

// Inputs and outputs that backward reads.
struct Saved {
  Tensors inputs, outputs;
};

class Op {
 public:
  virtual ~Op() = default;
  virtual std::string_view kind() const = 0;
  virtual Saved saved() const = 0;
  // Cheap to recompute compared with storing its output: dropped under `recompute: selective`.
  virtual bool cheap() const { return false; }
  // On CPUs, where products take so much longer, computing its first output, of this type, again is
  // as fast as reading it from memory: there it is dropped under any `recompute` if only backward
  // passes of the same scope keep it.
  virtual bool free_on_cpus(DType) const { return false; }
  // In training the forward pass is left to `backward`, which then writes outputs and gradients at
  // once. Such an op has no consumers.
  virtual bool forward_with_backward() const { return false; }
  // Inputs whose gradient is that of the first output, unchanged. The planner lets them share its
  // memory where it can; their slots are then absent.
  virtual Tensors passes_gradient() const { return {}; }
  virtual std::int64_t workspace_bytes(Phase) const { return 0; }
  // Scratch memory of its kernels on a device (kernels/scratch.h), where the recording's elements
  // are `dtype`.
  virtual std::int64_t scratch_bytes(Phase, DType /*dtype*/) const { return 0; }
  // Its inputs are made, or its outputs read, on another rank, where their gradients come from or
  // go to: it has a backward pass whatever is wanted here.
  virtual bool crosses_ranks() const { return false; }
  // Runs that do not reduce gradients leave its backward pass out.
  virtual bool of_whole_gradients() const { return false; }
  // Whether nothing else may use the workspace, nor write it between runs.
  virtual bool keeps_workspace(Phase) const { return false; }
  // A backward pass may make the gradients of activations first and those of parameters later.
  virtual bool parameters_apart() const { return false; }
  virtual Work work(Phase) const { return {}; }
  virtual void forward(Exec&) const = 0;
  virtual void backward(Exec&) const = 0;

  // A pass that communicates has stages: after stage k the program runs collective k, between the
  // tensors that exchanged() names. An op's own code does not communicate.
  virtual std::vector<comm::CollectiveCall> exchanges(Phase) const { return {}; }
  virtual Exchanged exchanged(Phase, std::size_t /*k*/, const Exec&) const {
    internal_error(std::string(kind()) + " exchanges nothing");
  }
  virtual void stage(Phase phase, std::size_t /*k*/, Exec& e) const {
    phase == Phase::backward ? backward(e) : forward(e);
  }
  // What a pass computes while collective k is under way, whose `in` it may read, and the share of
  // its work that this is; 0: nothing.
  virtual void beside(Phase, std::size_t /*k*/, Exec&) const {
    internal_error(std::string(kind()) + " computes nothing beside a collective");
  }
  virtual double share_beside(Phase, std::size_t /*k*/) const { return 0; }
};

// An op that communicates, in one pass at least.
class StagedOp : public Op {
 public:
  void forward(Exec&) const final { internal_error(std::string(kind()) + " runs in stages"); }
  void backward(Exec&) const final { internal_error(std::string(kind()) + " runs in stages"); }
  std::vector<comm::CollectiveCall> exchanges(Phase) const override = 0;
  Exchanged exchanged(Phase, std::size_t k, const Exec&) const override = 0;
  void stage(Phase, std::size_t k, Exec&) const override = 0;
};

}  // namespace tfm::graph
