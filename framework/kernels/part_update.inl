// Equations of updates of whole parts, for vectors (V) of T on CPUs and for scalars on GPUs. The
// including file defines sqrt(V) in this namespace beforehand.
#include "kernels/optimizer.inl"
#include "kernels/part_update.h"

namespace tfm::kernels {
namespace {

template <class T>
struct AdamDirection {
  constexpr AdamDirection(const AdamRule& r, const StepNumbers& now, const StepOutcome& outcome)
      : toward(static_cast<T>(1 - r.beta1)),
        beta2(static_cast<T>(r.beta2)),
        square(static_cast<T>(1 - r.beta2)),
        mean(static_cast<T>(1 / now.update.correction1)),
        root(static_cast<T>(1 / ::sqrt(now.update.correction2))),
        eps(static_cast<T>(r.eps)),
        decay(static_cast<T>(r.decay)),
        factor(static_cast<T>(outcome.gradient_factor)) {}

  template <class V>
  [[gnu::always_inline]] constexpr void operator()(V param, V& grad, V& m, V& v, T couple) const {
    const V g = grad * factor;
    m += (g - m) * toward;
    v = v * beta2 + g * g * square;
    grad = m * mean / (sqrt(v) * root + eps) + param * couple;
  }

  T toward, beta2, square, mean, root, eps, decay, factor;
};

struct Step {
  double shrink, size;
};

constexpr Step part_step(const TrustRatio&, const UpdateNumbers& now, std::int64_t, std::int64_t,
                         bool decays, const PartSquares* of_part) {
  if (!decays) return {1, now.lr};
  const double weights = total_of(of_part->weights), direction = total_of(of_part->direction);
  return {1, now.lr * (weights > 0 && direction > 0 ? ::sqrt(weights / direction) : 1)};
}

constexpr double larger(double a, double b) { return a < b ? b : a; }

constexpr Step part_step(const ClippedRms& rule, const UpdateNumbers& now, std::int64_t rows,
                         std::int64_t cols, bool decays, const PartSquares* of_part) {
  const auto elements = static_cast<double>(rows * cols);
  const double weights = ::sqrt(total_of(of_part->weights) / elements),
               direction = ::sqrt(total_of(of_part->direction) / elements),
               scale = larger(rule.eps2, weights), clip = larger(1.0, direction / rule.clip);
  return {1 - (decays ? now.lr * rule.decay : 0),
          (now.correction2 < now.lr ? now.correction2 : now.lr) * scale / clip};
}

constexpr Step part_step(const MatrixRate& rule, const UpdateNumbers& now, std::int64_t rows,
                         std::int64_t cols, bool decays, const PartSquares*) {
  const double lr = now.lr * rule.rate, m = static_cast<double>(rows),
               n = static_cast<double>(cols);
  return {1 - (decays ? lr * rule.decay : 0),
          lr * (rule.match_rms ? 0.2 * ::sqrt(larger(m, n)) : ::sqrt(larger(1.0, m / n)))};
}

template <class T>
struct Descent {
  template <class Rule, class P>
  static constexpr Descent of(const Rule& rule, const PartElements<T, P>& r, const StepNumbers& now,
                              const PartSquares* sums) {
    const Step s =
        part_step(rule, now.update, r.rows, r.cols, r.decays, sums ? sums + r.part : nullptr);
    return {static_cast<T>(s.shrink), static_cast<T>(s.size), static_cast<T>(1 - now.update.keep)};
  }

  template <class V>
  [[gnu::always_inline]] constexpr V operator()(V param, V direction) const {
    return param * shrink - direction * step;
  }

  T shrink, step, rate;  // rate: of the average
};

}  // namespace
}  // namespace tfm::kernels
