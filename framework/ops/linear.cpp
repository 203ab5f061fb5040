#include "ops/linear.h"

namespace tfm::ops {

void Linear::forward(graph::Exec& e) const {
  with_float(e.out(y).dtype, [&]<class T>() {
    device::on(e.stream(), [&](auto& s) {
      kernels::gemm(s, kernels::GemmArgs<T>{.transpose_b = true,
                                            .m = rows,
                                            .n = out,
                                            .k = in,
                                            .alpha = Accum<T>(scale),
                                            .a = e.in(x).ptr<T>(),
                                            .lda = in,
                                            .b = e.in(weight).ptr<T>(),
                                            .ldb = in,
                                            .c = e.out(y).ptr<T>(),
                                            .ldc = out,
                                            .bias = e.in(bias).ptr<T>()});
    });
  });
}

void Linear::backward(graph::Exec& e, bool of_bias) const {
  if (e.grad_in(x))
    with_float(e.grad_out(y).dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) { kernels::gemm(s, input_gradient<T>(e)); });
    });
  backward_of_parameters(e, of_bias);
}

void Linear::backward_of_parameters(graph::Exec& e, bool of_bias) const {
  with_float(e.grad_out(y).dtype, [&]<class T>() {
    device::on(e.stream(), [&](auto& s) {
      if (graph::GradSlot dw = e.grad_in(weight), db = e.grad_in(bias); dw)
        kernels::linear_gradients(
            s, kernels::LinearGradientsArgs<T>{
                   rows, in, out, Accum<T>(scale), e.grad_out(y).ptr<T>(), e.in(x).ptr<T>(),
                   dw.tensor.ptr<Accum<T>>(), dw.accumulate,
                   db && of_bias ? db.tensor.ptr<Accum<T>>() : nullptr, db.accumulate});
    });
  });
}

graph::Value linear(graph::Recorder& r, graph::Value x, graph::Value weight, graph::Value bias,
                    double scale) {
  auto op = std::make_unique<Linear>();
  op->rows = r.info(x).shape[0];
  op->in = r.info(weight).shape[1];
  op->out = r.info(weight).shape[0];
  op->trains_bias = bias && r.info(bias).wants_grad;
  TFM_CHECK(!op->trains_bias || r.info(weight).wants_grad,
            r.qualified("linear") + ": the bias of a weight that is not trained");
  op->scale = scale;
  TFM_CHECK(r.info(x).shape[1] == op->in,
            r.qualified("linear") + ": x is " + r.info(x).shape.str());
  return r.apply(std::move(op), {x, weight, bias},
                 {{{r.info(x).shape[0], r.info(weight).shape[0]}, r.dtype()}});
}

}  // namespace tfm::ops
