#pragma once
// The residual and dropout op, declared for the fusion table.
#include "kernels/dropout.h"
#include "ops/ops.h"

namespace tfm::ops {

// Without slots.
inline kernels::DropoutPlace dropout_place(const ActivationRegion& of) {
  kernels::DropoutPlace w{of.row_offset, of.col_offset, of.cols_total, of.rows.sequence_length};
  if (of.rows.chunks() > 1) {
    w.chunk_length = of.rows.chunk_length(), w.chunk_rows = of.rows.chunk_tokens();
    w.start[0] = of.rows.start(0), w.start[1] = of.rows.start(1);
  }
  return w;
}

struct DropoutAdd final : graph::Op {
  enum In { x, residual, slot, global };
  enum Out { y };

  std::int64_t rows, cols;
  double p;
  double jitter = 0;
  ActivationRegion place;
  std::uint32_t stream = 0;
  bool has_residual;

  template <class T>
  kernels::DropoutAddArgs<T> forward_args(graph::Exec& e) const {
    return {rows,  cols,    e.in(x).ptr<T>(), e.in(residual).ptr<T>(), e.out(y).ptr<T>(),
            false, mask(e), where(e)};
  }

  std::string_view kind() const override {
    return jitter > 0 ? "jitter" : has_residual ? "residual" : "dropout";
  }
  graph::Saved saved() const override { return {.inputs = {slot, global}}; }
  bool cheap() const override { return true; }
  graph::OperandSet passes_gradient() const override {
    return p == 0 && jitter == 0 ? graph::OperandSet{x, residual} : graph::OperandSet{residual};
  }
  graph::Work work(graph::Phase) const override { return {.kernel_per_gradient = true}; }
  void forward(graph::Exec& e) const override;
  void backward(graph::Exec& e) const override;

 private:
  kernels::Dropout mask(const graph::Exec& e) const {
    return {static_cast<float>(p),
            {e.state().seed, Purpose::dropout, stream},
            e.numbers(),
            static_cast<float>(jitter)};
  }
  kernels::DropoutPlace where(const graph::Exec& e) const {
    kernels::DropoutPlace w = dropout_place(place);
    w.slot = e.in(slot).ptr<std::int32_t>(), w.global = e.in(global).ptr<std::int32_t>();
    w.top_k = place.top_k;
    return w;
  }
};

}  // namespace tfm::ops
