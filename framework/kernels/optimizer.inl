// Steps of the update rules, on vectors (V) of T on the CPU and on scalars on a device. The file that includes this has defined sqrt(V)
// in this namespace.
#include <cmath>

#include "kernels/optimizer.h"

namespace tfm::kernels {
namespace {

template <class T> struct AdamStep {
  template <class P>
  AdamStep(const AdamArgs<T, P>& a, bool decays)
      : shrink(static_cast<T>(a.decoupled && decays ? 1 - a.lr * a.decay : 1)), couple(static_cast<T>(a.decoupled || !decays ? 0 : a.decay)),
        toward(static_cast<T>(1 - a.beta1)), beta2(static_cast<T>(a.beta2)), square(static_cast<T>(1 - a.beta2)),
        root(static_cast<T>(1 / std::sqrt(a.correction2))), eps(static_cast<T>(a.eps)), step(static_cast<T>(a.lr / a.correction1)),
        grad_scale(static_cast<T>(a.grad_scale)), rate(static_cast<T>(1 - a.keep)) {}

  template <class V> [[gnu::always_inline]] constexpr void operator()(V& p, V grad, V& m, V& v) const {
    const V g = grad * grad_scale + p * couple;
    m += (g - m) * toward;
    v = v * beta2 + g * g * square;
    p = p * shrink - step * (m / (sqrt(v) * root + eps));
  }

  T shrink, couple, toward, beta2, square, root, eps, step, grad_scale, rate;
};

template <class T> struct SgdStep {
  template <class P>
  SgdStep(const SgdArgs<T, P>& a, bool decays)
      : lr(static_cast<T>(a.lr)), momentum(static_cast<T>(a.momentum)), decay(static_cast<T>(decays ? a.decay : 0)),
        grad_scale(static_cast<T>(a.grad_scale)), rate(static_cast<T>(1 - a.keep)), first(a.first) {}

  // `m`: momentum's buffer; what it holds before the first step is not read.
  template <class V> [[gnu::always_inline]] constexpr void operator()(V& p, V grad, V& m, V&) const {
    V d = grad * grad_scale + p * decay;
    if (!first) d += m * momentum;
    m = d;
    p = p - d * lr;
  }

  T lr, momentum, decay, grad_scale, rate;
  bool first;
};

}  // namespace
}  // namespace tfm::kernels
