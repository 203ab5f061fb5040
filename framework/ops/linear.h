#pragma once
// The linear op, declared for the fusion table.
#include "kernels/gemm.h"
#include "kernels/scratch.h"
#include "ops/ops.h"

namespace tfm::ops {

struct Linear final : graph::Op {
  enum In { x, weight, bias };
  enum Out { y };

  std::int64_t rows, in, out;
  bool trains_bias;
  double scale;

  // Product that computes the gradient of x.
  template <class T>
  kernels::GemmArgs<T> input_gradient(graph::Exec& e) const {
    const graph::GradSlot dx = e.grad_in(x);
    return {.m = rows,
            .n = in,
            .k = out,
            .alpha = Accum<T>(scale),
            .a = e.grad_out(y).ptr<T>(),
            .lda = out,
            .b = e.in(weight).ptr<T>(),
            .ldb = in,
            .beta = Accum<T>(dx.accumulate),
            .c = dx.tensor.ptr<T>(),
            .ldc = in};
  }
  // of_bias false: something else computes the gradient of the bias.
  void backward(graph::Exec& e, bool of_bias) const;
  void backward_of_parameters(graph::Exec& e, bool of_bias = true) const;

  std::string_view kind() const override { return "linear"; }
  bool parameters_apart() const override { return true; }
  graph::Saved saved() const override { return {.inputs = {x, weight}}; }
  graph::Work work(graph::Phase phase) const override {
    if (phase != graph::Phase::backward) return {.products = {{rows, out, in}}};
    return {.products = {{rows, in, out}, {.m = out, .n = in, .k = rows, .sum = true}},
            .extra_elements = trains_bias ? rows * out : 0,
            .kernels = trains_bias ? 3 : 2};
  }
  std::int64_t scratch_bytes(graph::Phase phase, DType dtype) const override {
    return trains_bias && phase == graph::Phase::backward
               ? kernels::column_sum_scratch(rows, out, size_of(accum_type(dtype)))
               : 0;
  }
  void forward(graph::Exec& e) const override;
  void backward(graph::Exec& e) const override { backward(e, true); }
};

}  // namespace tfm::ops
