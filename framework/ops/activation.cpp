#include "kernels/activation.h"

#include "ops/linear.h"

namespace tfm::ops {
namespace {

struct Act final : Op {
  std::int64_t rows, cols;
  kernels::Activation act;
  bool gated;

  std::string_view kind() const override { return "activation"; }
  Saved saved() const override { return {.inputs = 0b1}; }
  bool cheap() const override { return true; }

  void forward(Exec& e) const override {
    with_float(e.out(0).dtype, [&]<class T>() {
      on(e.stream(), [&](auto& s) {
        kernels::activation(s, kernels::ActivationArgs<T>{rows, cols, act, gated, e.in(0).ptr<T>(), e.out(0).ptr<T>()});
      });
    });
  }
  template <class T> kernels::ActivationBackwardArgs<T> backward_args(Exec& e) const {
    const GradSlot dx = e.grad_in(0);
    return {rows, cols, act, gated, e.in(0).ptr<T>(), e.grad_out(0).ptr<T>(), dx.tensor.ptr<T>(), dx.accumulate};
  }
  void backward(Exec& e) const override {
    with_float(e.grad_out(0).dtype, [&]<class T>() {
      on(e.stream(), [&](auto& s) { kernels::activation_backward(s, backward_args<T>(e)); });
    });
  }
  // Not in forward: what selective recomputation makes of the input again would differ from it in its last bit.
  Join joins(const Op& before, Phase phase) const override {
    const bool able = phase == Phase::backward && act == kernels::Activation::gelu_tanh && !gated && dynamic_cast<const Linear*>(&before);
    return able ? Join::one_pass : Join::no;
  }
  void run_joined(Phase, const Op& before, Exec& of_before, Exec& e) const override {
    const Linear& linear = static_cast<const Linear&>(before);
    with_float(e.grad_out(0).dtype, [&]<class T>() {
      on(e.stream(), [&](auto& s) { kernels::gemm_activation_backward(s, kernels::GemmActivationBackwardArgs<T>{linear.input_gradient<T>(of_before), backward_args<T>(e)}); });
    });
    linear.backward_of_parameters(of_before);
  }
};

}  // namespace

Value activation(Recorder& r, Value x, kernels::Activation kind, bool gated) {
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
