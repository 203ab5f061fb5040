#include "ops/fusion.h"

#include "kernels/elementwise.h"
#include "ops/activation.h"
#include "ops/dropout_add.h"
#include "ops/linear.h"
#include "ops/norm.h"

namespace tfm::ops {
namespace {

// The norm of a sum, with the sum.
void add_norm(const DropoutAdd& add, graph::Exec& of_add, const Norm& norm, graph::Exec& of_norm) {
  with_float(of_norm.out(Norm::y).dtype, [&]<class T>() {
    device::on(of_norm.stream(), [&](auto& s) {
      kernels::add_norm(
          s, kernels::AddNormArgs<T>{add.forward_args<T>(of_add), norm.forward_args<T>(of_norm)});
    });
  });
}

// The gradient of a linear layer's input through the activation in front of it.
void activation_backward(const Linear& linear, graph::Exec& of_linear, const Act& act,
                         graph::Exec& of_act) {
  with_float(of_act.grad_out(Act::y).dtype, [&]<class T>() {
    device::on(of_act.stream(), [&](auto& s) {
      kernels::gemm_activation_backward(
          s, kernels::GemmActivationBackwardArgs<T>{linear.input_gradient<T>(of_linear),
                                                    act.backward_args<T>(of_act)});
    });
  });
  linear.backward_of_parameters(of_linear);
}
bool is_plain_gelu_tanh(const Linear&, const Act& act) {
  return act.act == kernels::Activation::gelu_tanh && !act.gated;
}

// The gradient of an activation's input and, as its sum on the way, that of the bias which the
// linear layer in front of it adds.
void bias_gradient(const Act& act, graph::Exec& of_act, const Linear& linear,
                   graph::Exec& of_linear) {
  const graph::GradSlot db = of_linear.grad_in(Linear::bias);
  with_float(of_act.grad_out(Act::y).dtype, [&]<class T>() {
    device::on(of_act.stream(), [&](auto& s) {
      kernels::activation_backward_sum(
          s, kernels::ActivationBackwardSumArgs<T>{act.backward_args<T>(of_act),
                                                   db.tensor.ptr<Accum<T>>(), db.accumulate});
    });
  });
  linear.backward(of_linear, false);
}
bool is_plain_with_bias(const Act& act, const Linear& linear) {
  return !act.gated && linear.trains_bias;
}

}  // namespace

std::span<const graph::Fusion> fusions() {
  using graph::Phase;
  static const graph::Fusion table[] = {
      graph::fusion<DropoutAdd, Norm, add_norm>(Phase::forward),
      // Not in forward: what selective recomputation makes of the input again would differ from it
      // in its last bit.
      graph::fusion<Linear, Act, activation_backward, is_plain_gelu_tanh>(Phase::backward),
      graph::fusion<Act, Linear, bias_gradient, is_plain_with_bias>(Phase::backward, true),
  };
  return table;
}

}  // namespace tfm::ops
