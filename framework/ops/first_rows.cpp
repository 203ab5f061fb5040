#include "kernels/elementwise.h"
#include "ops/ops.h"

namespace tfm::ops {
namespace {

struct FirstRows final : graph::Op {
  enum In { x };
  enum Out { y };

  std::int64_t sequences, length, cols;

  std::string_view kind() const override { return "first_rows"; }
  graph::Saved saved() const override { return {}; }

  void forward(graph::Exec& e) const override {
    with_float(e.out(y).dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        kernels::copy_rows(s, kernels::CopyRowsArgs<T>{sequences, cols, e.in(x).ptr<T>(),
                                                       length * cols, e.out(y).ptr<T>(), cols});
      });
    });
  }
  void backward(graph::Exec& e) const override {
    const graph::GradSlot dx = e.grad_in(x);
    with_float(e.grad_out(y).dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        if (!dx.accumulate)
          kernels::fill(s,
                        kernels::FillArgs<T>{sequences * length * cols, T{}, dx.tensor.ptr<T>()});
        kernels::copy_rows(s,
                           kernels::CopyRowsArgs<T>{sequences, cols, e.grad_out(y).ptr<T>(), cols,
                                                    dx.tensor.ptr<T>(), length * cols, true});
      });
    });
  }
};

}  // namespace

graph::Value first_rows(graph::Recorder& r, graph::Value x, std::int64_t sequence_length) {
  auto op = std::make_unique<FirstRows>();
  op->length = sequence_length;
  op->sequences = div_exact(r.info(x).shape[0], sequence_length);
  op->cols = r.info(x).shape[1];
  const Shape shape{op->sequences, op->cols};
  return r.apply(std::move(op), {x}, {{shape, r.dtype()}});
}

}  // namespace tfm::ops
