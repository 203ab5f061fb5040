#include "kernels/gemm.h"
#include "ops/ops.h"

namespace tfm::ops {
namespace {

struct Linear final : Op {
  std::int64_t rows, in, out;
  bool bias;
  double scale;

  std::string_view kind() const override { return "linear"; }
  Saved saved() const override { return {.inputs = 0b011}; }
  Work work(Phase phase) const override {
    if (phase != Phase::backward) return {.products = {{rows, out, in}}};
    return {.products = {{rows, in, out}, {.m = out, .n = in, .k = rows, .sum = true}}, .again = bias ? rows * out : 0, .kernels = bias ? 3 : 2};
  }

  template <class T> void forward_as(Exec& e) const {
    on(e.stream(), [&](auto& s) {
      kernels::gemm(s, kernels::GemmArgs<T>{.transpose_b = true, .m = rows, .n = out, .k = in, .alpha = Wide<T>(scale), .a = e.in(0).ptr<T>(), .lda = in,
                                            .b = e.in(1).ptr<T>(), .ldb = in, .c = e.out(0).ptr<T>(), .ldc = out,
                                            .bias = bias ? e.in(2).ptr<T>() : nullptr});
    });
  }
  template <class T> void backward_as(Exec& e) const {
    const T* dy = e.grad_out(0).ptr<T>();
    on(e.stream(), [&](auto& s) {
      if (GradSlot dx = e.grad_in(0))
        kernels::gemm(s, kernels::GemmArgs<T>{.m = rows, .n = in, .k = out, .alpha = Wide<T>(scale), .a = dy, .lda = out, .b = e.in(1).ptr<T>(), .ldb = in,
                                              .beta = Wide<T>(dx.accumulate), .c = dx.tensor.ptr<T>(), .ldc = in});
      if (GradSlot dw = e.grad_in(1), db = e.grad_in(2); dw)
        kernels::linear_gradients(s, kernels::LinearGradientsArgs<T>{rows, in, out, Wide<T>(scale), dy, e.in(0).ptr<T>(), dw.tensor.ptr<Wide<T>>(),
                                                                     dw.accumulate, db ? db.tensor.ptr<Wide<T>>() : nullptr, db.accumulate});
    });
  }
  void forward(Exec& e) const override { with_float(e.out(0).dtype, [&]<class T>() { forward_as<T>(e); }); }
  void backward(Exec& e) const override { with_float(e.grad_out(0).dtype, [&]<class T>() { backward_as<T>(e); }); }
};

}  // namespace

Value linear(Recorder& r, Value x, Value weight, Value bias, double scale) {
  auto op = std::make_unique<Linear>();
  op->rows = r.info(x).shape[0];
  op->in = r.info(weight).shape[1];
  op->out = r.info(weight).shape[0];
  op->bias = static_cast<bool>(bias);
  op->scale = scale;
  TFM_CHECK(r.info(x).shape[1] == op->in, r.qualified("linear") + ": x is " + r.info(x).shape.str());
  return r.apply(std::move(op), {x, weight, bias}, {{{r.info(x).shape[0], r.info(weight).shape[0]}, r.real()}});
}

}  // namespace tfm::ops
