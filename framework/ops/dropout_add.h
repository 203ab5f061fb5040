#pragma once
// What norms, which can join this op, know of it.
#include "kernels/dropout.h"
#include "ops/ops.h"

namespace tfm::ops {

struct DropoutAdd final : graph::Op {
  std::int64_t rows, cols;
  double p;
  Place place;
  std::uint32_t stream = 0;
  bool residual;

  template <class T>
  kernels::DropoutAddArgs<T> forward_args(graph::Exec& e) const {
    return {
        rows,  cols,    e.in(0).ptr<T>(), residual ? e.in(1).ptr<T>() : nullptr, e.out(0).ptr<T>(),
        false, mask(e), where()};
  }

  std::string_view kind() const override { return residual ? "residual" : "dropout"; }
  graph::Saved saved() const override { return {}; }
  bool cheap() const override { return true; }
  unsigned passes_gradient() const override {
    return (p == 0 ? 0b01u : 0u) | (residual ? 0b10u : 0u);
  }
  graph::Work work(graph::Phase) const override { return {.each = true}; }
  void forward(graph::Exec& e) const override;
  void backward(graph::Exec& e) const override;

 private:
  kernels::Dropout mask(const graph::Exec& e) const {
    return {static_cast<float>(p), {e.state().seed, Purpose::dropout, stream}, e.numbers()};
  }
  kernels::DropoutPlace where() const {
    return {place.row_offset, place.col_offset, place.cols_total, place.sequence_length};
  }
};

}  // namespace tfm::ops
