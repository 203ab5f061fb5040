#pragma once
// The activation op, declared for the fusion table.
#include "kernels/activation.h"
#include "ops/ops.h"

namespace tfm::ops {

struct Act final : graph::Op {
  enum In { x };
  enum Out { y };

  std::int64_t rows, cols;
  kernels::Activation act;
  bool gated;

  std::string_view kind() const override { return "activation"; }
  graph::Saved saved() const override { return {.inputs = {x}}; }
  bool cheap() const override { return true; }
  graph::OperandSet kinks() const override {
    return act == kernels::Activation::relu ? graph::OperandSet{x} : graph::OperandSet{};
  }
  // With 16-bit types, matrix products are so fast that recomputing exponentials is not free.
  bool free_on_cpus(DType dtype) const override { return size_of(dtype) > 2; }

  template <class T>
  kernels::ActivationBackwardArgs<T> backward_args(graph::Exec& e) const {
    const graph::GradSlot dx = e.grad_in(x);
    return {rows,
            cols,
            act,
            gated,
            e.in(x).ptr<T>(),
            e.grad_out(y).ptr<T>(),
            dx.tensor.ptr<T>(),
            dx.accumulate};
  }
  void forward(graph::Exec& e) const override;
  void backward(graph::Exec& e) const override;
};

}  // namespace tfm::ops
