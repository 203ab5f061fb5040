#pragma once
// The norm op, declared for the fusion table.
#include "kernels/norm.h"
#include "kernels/scratch.h"
#include "ops/ops.h"

namespace tfm::ops {

struct Norm final : graph::Op {
  enum In { x, gain, shift };
  enum Out { y, mean, rstd };

  std::int64_t rows, cols;
  NormOptions options;

  std::string_view kind() const override { return "norm"; }
  graph::Saved saved() const override { return {.inputs = {x, gain}, .outputs = {mean, rstd}}; }
  bool cheap() const override { return true; }
  bool free_on_cpus(DType) const override { return true; }
  std::int64_t scratch_bytes(graph::Phase phase, DType dtype) const override {
    return phase == graph::Phase::backward
               ? kernels::norm_backward_scratch(rows, cols, size_of(dtype))
               : 0;
  }
  graph::Work work(graph::Phase phase) const override {
    return {.kernels = phase == graph::Phase::backward ? 2 : 1};
  }

  template <class T>
  kernels::NormArgs<T> forward_args(graph::Exec& e) const {
    return {rows,
            cols,
            e.in(x).ptr<T>(),
            e.in(gain).ptr<T>(),
            e.in(shift).ptr<T>(),
            e.out(y).ptr<T>(),
            e.out(mean).ptr<Accum<T>>(),
            e.out(rstd).ptr<Accum<T>>(),
            options.eps,
            options.rms,
            {},
            Accum<T>(options.plus_one),
            options.eps_outside};
  }
  void forward(graph::Exec& e) const override;
  void backward(graph::Exec& e) const override;
};

}  // namespace tfm::ops
