#pragma once
// What an op sees when it runs: its tensors, and the state of the step.
#include <array>
#include <span>

#include "comm/mesh.h"
#include "core/step_numbers.h"
#include "core/tensor.h"
#include "device/stream.h"
#include "graph/operand_set.h"

namespace tfm::graph {

// Destination of a gradient: assigned, or added to if `accumulate`; null if the gradient is not
// needed.
struct GradSlot {
  Tensor tensor;
  bool accumulate = false;
  explicit operator bool() const { return static_cast<bool>(tensor); }
};

// Position of a micro-batch within its step. The first one gathers updated parameters, the last one
// reduces the accumulated gradients.
struct MicroBatch {
  bool first = true, last = true;
  auto operator<=>(const MicroBatch&) const = default;
};

// Host-side state of one run of the program; values that change from step to step are in
// StepNumbers.
struct StepState {
  std::uint64_t seed = 0;
  std::int64_t first_position = 0;  // position of each sequence's first row; > 0 in generation
  MicroBatch micro_batch;  // parameter gradients are assigned by the first one, else added to
  // By objective: number of packed rows that a GPU computes, which must hold all labelled rows
  // (kernels/packed_rows.h). 0: unknown, all rows are computed. CPUs count the labels themselves.
  std::array<std::int64_t, kMostObjectives> packed_rows{};
};

struct Instruction;

// Hooks of a program that runs on a CPU. They may change the tensors that they see.
class Hooks {
 public:
  virtual ~Hooks() = default;
  virtual void before(const Instruction&) {}
  virtual void after(const Instruction&) {}
  // A tensor that a fused op keeps to itself, and that separate ops would store.
  virtual void inner(Tensor) {}
};

struct ExecContext {
  device::AnyStream stream;
  const comm::Mesh* mesh = nullptr;
  StepState state;
  const StepNumbers* numbers = nullptr;  // in device memory; null: all zero, gradients unscaled
  Hooks* hooks = nullptr;
};

// Tensors of one step of the program, as seen by the op that runs.
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

  // Tensors by the op's names. Null: inputs that were not given and, in backward, tensors that are
  // not declared in Op::saved() and gradients that do not exist or are not wanted.
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

}  // namespace tfm::graph
