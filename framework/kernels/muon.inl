// Equation of Muon's momentum, for vectors (V) of T on CPUs and for scalars on GPUs.
#include "kernels/muon.h"

namespace tfm::kernels {
namespace {

template <class T>
struct Momentum {
  constexpr Momentum(double momentum, bool nesterov, const StepOutcome& outcome)
      : factor(static_cast<T>(outcome.gradient_factor)),
        toward(static_cast<T>(1 - momentum)),
        ahead(static_cast<T>(momentum)),
        nesterov(nesterov) {}

  template <class V>
  [[gnu::always_inline]] constexpr void operator()(V& grad, V& m) const {
    const V g = grad * factor;
    m += (g - m) * toward;
    grad = nesterov ? g + (m - g) * ahead : m;
  }

  T factor, toward, ahead;
  bool nesterov;
};

}  // namespace
}  // namespace tfm::kernels
