#include "ops/activation.h"

namespace tfm::ops {

void Act::forward(graph::Exec& e) const {
  with_float(e.out(y).dtype, [&]<class T>() {
    device::on(e.stream(), [&](auto& s) {
      kernels::activation(s, kernels::ActivationArgs<T>{rows, cols, act, gated, e.in(x).ptr<T>(),
                                                        e.out(y).ptr<T>()});
    });
  });
}

void Act::backward(graph::Exec& e) const {
  with_float(e.grad_out(y).dtype, [&]<class T>() {
    device::on(e.stream(), [&](auto& s) { kernels::activation_backward(s, backward_args<T>(e)); });
  });
}

graph::Value activation(graph::Recorder& r, graph::Value x, kernels::Activation kind, bool gated) {
  auto op = std::make_unique<Act>();
  const Shape shape = r.info(x).shape;
  op->rows = shape[0];
  op->cols = gated ? div_exact(shape[1], 2) : shape[1];
  op->act = kind;
  op->gated = gated;
  const std::int64_t cols = op->cols;
  return r.apply(std::move(op), {x}, {{{shape[0], cols}, r.dtype()}});
}

}  // namespace tfm::ops
