// One step of Adam, on vectors (V) of T on the CPU and on scalars on a device. The file that includes this has defined sqrt(V) in
// this namespace.
#include <cmath>

#include "kernels/optimizer.h"

namespace tfm::kernels {
namespace {

template <class T> struct AdamStep {
  explicit AdamStep(const AdamArgs<T>& a)
      : shrink(static_cast<T>(a.decoupled ? 1 - a.lr * a.decay : 1)), couple(static_cast<T>(a.decoupled ? 0 : a.decay)),
        toward(static_cast<T>(1 - a.beta1)), beta2(static_cast<T>(a.beta2)), square(static_cast<T>(1 - a.beta2)),
        root(static_cast<T>(1 / std::sqrt(a.correction2))), eps(static_cast<T>(a.eps)), step(static_cast<T>(a.lr / a.correction1)),
        grad_scale(static_cast<T>(a.grad_scale)) {}

  template <class V> [[gnu::always_inline]] constexpr void operator()(V& p, V grad, V& m, V& v) const {
    const V g = grad * grad_scale + p * couple;
    m += (g - m) * toward;
    v = v * beta2 + g * g * square;
    p = p * shrink - step * (m / (sqrt(v) * root + eps));
  }

  T shrink, couple, toward, beta2, square, root, eps, step, grad_scale;
};

}  // namespace
}  // namespace tfm::kernels
