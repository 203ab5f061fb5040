#include "ops/norm.h"

#include "kernels/elementwise.h"

namespace tfm::ops {

void Norm::forward(graph::Exec& e) const {
  with_float(e.out(y).dtype, [&]<class T>() {
    device::on(e.stream(), [&](auto& s) { kernels::norm(s, forward_args<T>(e)); });
  });
}

void Norm::backward(graph::Exec& e) const {
  with_float(e.grad_out(y).dtype, [&]<class T>() {
    const graph::GradSlot dx = e.grad_in(x), dgain = e.grad_in(gain), dshift = e.grad_in(shift);
    device::on(e.stream(), [&](auto& s) {
      kernels::norm_backward(s, kernels::NormBackwardArgs<T>{rows,
                                                             cols,
                                                             e.grad_out(y).ptr<T>(),
                                                             e.in(x).ptr<T>(),
                                                             e.in(gain).ptr<T>(),
                                                             e.out(mean).ptr<Accum<T>>(),
                                                             e.out(rstd).ptr<Accum<T>>(),
                                                             dx.tensor.ptr<T>(),
                                                             dx.accumulate,
                                                             dgain.tensor.ptr<Accum<T>>(),
                                                             dgain.accumulate,
                                                             dshift.tensor.ptr<Accum<T>>(),
                                                             dshift.accumulate,
                                                             options.rms,
                                                             {},
                                                             Accum<T>(options.plus_one),
                                                             options.eps,
                                                             options.eps_outside});
    });
  });
}

graph::Value norm(graph::Recorder& r, graph::Value x, NormOptions options, graph::Value gain,
                  graph::Value shift) {
  auto op = std::make_unique<Norm>();
  const Shape shape = r.info(x).shape;
  op->rows = shape[0];
  op->cols = shape[1];
  op->options = options;
  return r.apply(std::move(op), {x, gain, shift},
                 {{shape, r.dtype()},
                  {{shape[0]}, accum_type(r.dtype()), false},
                  {{shape[0]}, accum_type(r.dtype()), false}});
}

}  // namespace tfm::ops
