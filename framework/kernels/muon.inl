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

  // `flag`: nesterov, or std::bool_constant of it (with_flag).
  template <class V, class Flag>
  [[gnu::always_inline]] constexpr void operator()(V& grad, V& m, Flag flag) const {
    const V g = grad * factor;
    m += (g - m) * toward;
    grad = flag ? g + (m - g) * ahead : m;
  }

  T factor, toward, ahead;
  bool nesterov;
};

}  // namespace
}  // namespace tfm::kernels
