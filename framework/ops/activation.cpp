#include "kernels/activation.h"

#include "ops/linear.h"

namespace tfm::ops {
namespace {

struct Act final : graph::Op {
  enum In { x };
  enum Out { y };

  std::int64_t rows, cols;
  kernels::Activation act;
  bool gated;

  std::string_view kind() const override { return "activation"; }
  graph::Saved saved() const override { return {.inputs = {x}}; }
  bool cheap() const override { return true; }

  void forward(graph::Exec& e) const override {
    with_float(e.out(y).dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        kernels::activation(s, kernels::ActivationArgs<T>{rows, cols, act, gated, e.in(x).ptr<T>(),
                                                          e.out(y).ptr<T>()});
      });
    });
  }
  template <class T>
  kernels::ActivationBackwardArgs<T> backward_args(graph::Exec& e) const {
    const graph::GradSlot dx = e.grad_in(x);
    return {rows,
            cols,
            act,
            gated,
            e.in(x).ptr<T>(),
            e.grad_out(y).ptr<T>(),
            dx.tensor.ptr<T>(),
            dx.accumulate};
  }
  void backward(graph::Exec& e) const override {
    with_float(e.grad_out(y).dtype, [&]<class T>() {
      device::on(e.stream(),
                 [&](auto& s) { kernels::activation_backward(s, backward_args<T>(e)); });
    });
  }
  // Not in forward: what selective recomputation makes of the input again would differ from it in
  // its last bit.
  graph::Join joins(const graph::Op& before, graph::Phase phase) const override {
    const bool able = phase == graph::Phase::backward && act == kernels::Activation::gelu_tanh &&
                      !gated && dynamic_cast<const Linear*>(&before);
    return able ? graph::Join::one_pass : graph::Join::no;
  }
  void run_joined(graph::Phase, const graph::Op& before, graph::Exec& of_before,
                  graph::Exec& e) const override {
    const Linear& linear = static_cast<const Linear&>(before);
    with_float(e.grad_out(y).dtype, [&]<class T>() {
      device::on(e.stream(), [&](auto& s) {
        kernels::gemm_activation_backward(
            s, kernels::GemmActivationBackwardArgs<T>{linear.input_gradient<T>(of_before),
                                                      backward_args<T>(e)});
      });
    });
    linear.backward_of_parameters(of_before);
  }
};

}  // namespace

graph::Value activation(graph::Recorder& r, graph::Value x, kernels::Activation kind, bool gated) {
  auto op = std::make_unique<Act>();
  const Shape shape = r.info(x).shape;
  op->rows = shape[0];
  op->cols = gated ? div_exact(shape[1], 2) : shape[1];
  op->act = kind;
  op->gated = gated;
  const std::int64_t cols = op->cols;
  return r.apply(std::move(op), {x}, {{{shape[0], cols}, r.real()}});
}

}  // namespace tfm::ops
