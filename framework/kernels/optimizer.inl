// Equations of the update rules, for vectors (V) of T on CPUs and for scalars on GPUs. The
// including file defines sqrt(V) in this namespace beforehand.
#include <cmath>
#include <utility>

#include "kernels/optimizer.h"

namespace tfm::kernels {
namespace {

template <class T>
struct AdamStep {
  constexpr AdamStep(const AdamRule& r, const StepNumbers& now, double gradient_factor, bool decays)
      : shrink(static_cast<T>(r.decoupled && decays ? 1 - now.update.lr * r.decay : 1)),
        couple(static_cast<T>(r.decoupled || !decays ? 0 : r.decay)),
        toward(static_cast<T>(1 - r.beta1)),
        beta2(static_cast<T>(r.beta2)),
        square(static_cast<T>(1 - r.beta2)),
        root(static_cast<T>(1 / ::sqrt(now.update.correction2))),
        eps(static_cast<T>(r.eps)),
        step(static_cast<T>(now.update.lr / now.update.correction1)),
        factor(static_cast<T>(gradient_factor)),
        rate(static_cast<T>(1 - now.update.keep)) {}

  template <class V>
  [[gnu::always_inline]] constexpr void operator()(V& p, V grad, V& m, V& v) const {
    const V g = grad * factor + p * couple;
    m += (g - m) * toward;
    v = v * beta2 + g * g * square;
    p = p * shrink - step * (m / (sqrt(v) * root + eps));
  }

  T shrink, couple, toward, beta2, square, root, eps, step, factor, rate;
};

template <class T>
struct SgdStep {
  constexpr SgdStep(const SgdRule& r, const StepNumbers& now, double gradient_factor, bool decays)
      : lr(static_cast<T>(now.update.lr)),
        momentum(static_cast<T>(r.momentum)),
        decay(static_cast<T>(decays ? r.decay : 0)),
        factor(static_cast<T>(gradient_factor)),
        rate(static_cast<T>(1 - now.update.keep)) {}

  template <class V>
  [[gnu::always_inline]] constexpr void operator()(V& p, V grad, V& m, V&) const {
    V d = grad * factor + p * decay;
    d += m * momentum;
    m = d;
    p = p - d * lr;
  }

  T lr, momentum, decay, factor, rate;
};

template <class T>
struct LoadStep {
  constexpr LoadStep(const LoadRule& r, const StepNumbers& now, double, bool)
      : step(static_cast<T>(r.rate)), rate(static_cast<T>(1 - now.update.keep)) {}

  template <class V>
  [[gnu::always_inline]] constexpr void operator()(V& p, V grad, V&, V&) const {
    const V one = V{} + 1, least = V{} - 1;
    const V most = grad < one ? grad : one;
    p = p - (most > least ? most : least) * step;
  }

  T step, rate;
};

template <class T>
AdamStep<T> step_of(const AdamRule&);
template <class T>
LoadStep<T> step_of(const LoadRule&);
template <class T>
SgdStep<T> step_of(const SgdRule&);

// The steps of one update, for elements with and without weight decay.
template <class Rule, class T>
struct Steps {
  using Step = decltype(step_of<T>(std::declval<const Rule&>()));
  constexpr Steps(const Rule& rule, const StepNumbers& now, const StepOutcome& outcome)
      : decaying(rule, now, outcome.gradient_factor, true),
        plain(rule, now, outcome.gradient_factor, false),
        applied(outcome.applied != 0) {}
  Step decaying, plain;
  bool applied;
};

// Splits the last limb, which may exceed 32 bits, in two.
constexpr void put(const std::int64_t (&limb)[4], SquareSum& to) {
  for (int k = 0; k < 3; ++k) to.limb[k] = static_cast<double>(limb[k]);
  to.limb[3] = static_cast<double>(limb[3] & 0xFFFFFFFF);
  to.limb[4] = static_cast<double>(limb[3] >> 32);
}

template <int N>
constexpr void carry(std::int64_t (&limb)[N]) {
  for (int k = 0; k + 1 < N; ++k) {
    limb[k + 1] += limb[k] >> 32;
    limb[k] &= 0xFFFFFFFF;
  }
}

constexpr bool finite(double x) { return x - x == 0; }

constexpr double total_of(const SquareSum& s) {
  // Carries are propagated first, so that the total does not depend on how ranks split the sum.
  std::int64_t limb[5] = {};
  double sum = 0;
  for (int k = 0; k < 5; ++k) limb[k] = static_cast<std::int64_t>(s.limb[k]);
  carry(limb);
  for (int k = 4; k >= 0; --k) sum = sum * 0x1p32 + static_cast<double>(limb[k]);
  return s.too_large == 0 ? sum * 0x1p-88 : s.plain;
}

constexpr void decide_update(const ClipArgs& a) {
  StepOutcome& o = *a.outcome;
  o.norm = ::sqrt(total_of(o.squares));
  const double factor = a.most > 0 && a.most < o.norm + 1e-6 ? a.most / (o.norm + 1e-6) : 1;
  o.gradient_factor = factor / a.numbers->loss_scale;
  // o.applied is still that of the previous step.
  const bool expected = a.numbers->assumes_update == 0 || o.applied != 0;
  o.applied = expected && finite(o.norm) && o.squares.bad_losses == 0;
}

}  // namespace
}  // namespace tfm::kernels
