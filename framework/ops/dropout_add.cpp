#include "ops/dropout_add.h"

#include "kernels/elementwise.h"

namespace tfm::ops {

void DropoutAdd::forward(graph::Exec& e) const {
  with_float(e.out(y).dtype, [&]<class T>() {
    device::on(e.stream(), [&](auto& s) { kernels::dropout_add(s, forward_args<T>(e)); });
  });
}

void DropoutAdd::backward(graph::Exec& e) const {
  with_float(e.grad_out(y).dtype, [&]<class T>() {
    const T* dy = e.grad_out(y).ptr<T>();
    device::on(e.stream(), [&](auto& s) {
      if (graph::GradSlot dx = e.grad_in(x))
        kernels::dropout_add(s,
                             kernels::DropoutAddArgs<T>{rows, cols, dy, nullptr, dx.tensor.ptr<T>(),
                                                        dx.accumulate, mask(e), where(e)});
      if (graph::GradSlot dr = e.grad_in(residual))
        kernels::copy(s, kernels::CopyArgs<T>{rows * cols, dy, dr.tensor.ptr<T>(), dr.accumulate});
    });
  });
}

namespace {

graph::Value record(graph::Recorder& r, graph::Value x, graph::Value residual, double p,
                    double jitter, const ActivationRegion& place) {
  auto op = std::make_unique<DropoutAdd>();
  const Shape shape = r.info(x).shape;
  op->rows = shape[0];
  op->cols = shape[1];
  op->p = p;
  op->jitter = jitter;
  op->place = place;
  op->has_residual = static_cast<bool>(residual);
  if (p > 0 || jitter > 0) op->stream = r.random_stream(std::string(op->kind()));
  return r.apply(std::move(op), {x, residual, place.slot, place.global}, {{shape, r.dtype()}});
}

}  // namespace

graph::Value dropout_add(graph::Recorder& r, graph::Value x, graph::Value residual, double p,
                         const ActivationRegion& place) {
  return record(r, x, residual, p, 0, place);
}

graph::Value jitter(graph::Recorder& r, graph::Value x, double range,
                    const ActivationRegion& place) {
  return record(r, x, {}, 0, range, place);
}

}  // namespace tfm::ops
