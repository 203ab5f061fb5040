#include "kernels/elementwise.h"
#include "ops/ops.h"

namespace tfm::ops {
namespace {

struct FirstRows final : graph::Op {
  enum In { x };
  enum Out { y };

  Rows rows;
  std::int64_t cols;

  std::string_view kind() const override { return "first_rows"; }
  graph::Saved saved() const override { return {}; }
  std::int64_t stride() const { return rows.chunk_length() * cols; }

  void forward(graph::Exec& e) const override {
    with_float(e.out(y).dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        kernels::copy_rows(s, kernels::CopyRowsArgs<T>{rows.sequences, cols, e.in(x).ptr<T>(),
                                                       stride(), e.out(y).ptr<T>(), cols});
      });
    });
  }
  void backward(graph::Exec& e) const override {
    const graph::GradSlot dx = e.grad_in(x);
    with_float(e.grad_out(y).dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        if (!dx.accumulate)
          kernels::fill(s, kernels::FillArgs<T>{rows.tokens() * cols, T{}, dx.tensor.ptr<T>()});
        kernels::copy_rows(s, kernels::CopyRowsArgs<T>{rows.sequences, cols, e.grad_out(y).ptr<T>(),
                                                       cols, dx.tensor.ptr<T>(), stride(), true});
      });
    });
  }
};

}  // namespace

graph::Value first_rows(graph::Recorder& r, graph::Value x, const Rows& rows) {
  auto op = std::make_unique<FirstRows>();
  TFM_CHECK(r.info(x).shape[0] == rows.tokens(), "the rows of " + r.info(x).shape.str());
  op->rows = rows;
  op->cols = r.info(x).shape[1];
  const Shape shape{rows.sequences, op->cols};
  return r.apply(std::move(op), {x}, {{shape, r.dtype()}});
}

}  // namespace tfm::ops
