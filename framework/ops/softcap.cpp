#include "kernels/elementwise.h"
#include "ops/ops.h"

namespace tfm::ops {
namespace {

struct Softcap final : graph::Op {
  enum In { x };
  enum Out { y };

  double cap = 1;

  std::string_view kind() const override { return "softcap"; }
  graph::Saved saved() const override { return {.outputs = {y}}; }
  bool cheap() const override { return true; }

  void forward(graph::Exec& e) const override {
    const Shape shape = e.out(y).shape;
    with_float(e.out(y).dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        kernels::softcap(
            s, kernels::SoftcapArgs<T>{shape[0], shape[1], shape[1], static_cast<Accum<T>>(cap),
                                       e.in(x).ptr<T>(), e.out(y).ptr<T>()});
      });
    });
  }
  void backward(graph::Exec& e) const override {
    const graph::GradSlot dx = e.grad_in(x);
    if (!dx) return;
    with_float(e.grad_out(y).dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        kernels::softcap_backward(
            s, kernels::SoftcapBackwardArgs<T>{e.out(y).elements(), static_cast<Accum<T>>(cap),
                                               e.out(y).ptr<T>(), e.grad_out(y).ptr<T>(),
                                               dx.tensor.ptr<T>(), dx.accumulate});
      });
    });
  }
};

}  // namespace

graph::Value softcap(graph::Recorder& r, graph::Value x, double c) {
  auto op = std::make_unique<Softcap>();
  op->cap = c;
  return r.apply(std::move(op), {x}, {{r.info(x).shape, r.dtype()}});
}

}  // namespace tfm::ops
