// Equations of Adafactor's second moments; see part_update.inl.
#include <bit>

#include "kernels/factored_moments.h"
#include "kernels/part_update.inl"

namespace tfm::kernels {
namespace {

// Squares of a clipped gradient as scaled integers, whose sum over the whole gradient is at most
// 2^61.
template <class T>
struct WholeSquares {
  constexpr WholeSquares(const StepNumbers& now, const StepOutcome& outcome)
      : factor(static_cast<T>(outcome.gradient_factor)) {
    const double norm = outcome.norm * outcome.gradient_factor * now.loss_scale,
                 square = norm * norm;
    // square < 2^(exponent - 1022), a power of two
    const auto exponent = static_cast<int>(std::bit_cast<std::uint64_t>(square) >> 52 & 0x7FF);
    if (square > 0)
      scale = power_of_two(61 + 1022 - exponent);
    else if (norm > 0)
      scale = power_of_two(61);
  }
  static constexpr double power_of_two(int exponent) {
    const int biased = exponent + 1023;
    return std::bit_cast<double>(static_cast<std::uint64_t>(biased < 2047 ? biased : 2047) << 52);
  }

  constexpr std::int64_t operator()(T x) const {
    const auto g = static_cast<double>(x * factor);
    return static_cast<std::int64_t>(g * g * scale);
  }

  double scale = 1;
  T factor;
};

template <class T>
struct Means {
  constexpr Means(const StepNumbers& now, const StepOutcome& outcome)
      : whole(WholeSquares<T>(now, outcome).scale), share(static_cast<T>(now.update.correction1)) {}
  // Factor that turns a sum of `terms` scaled squares into their mean.
  constexpr double scale(std::int64_t terms) const {
    return 1 / (whole * static_cast<double>(terms));
  }
  constexpr T change(T mean, std::int64_t sum, double scale) const {
    return (static_cast<T>(static_cast<double>(sum) * scale) - mean) * share;
  }
  double whole;
  T share;
};

template <class T>
struct MeansRoot {
  constexpr MeansRoot(double least, const StepOutcome& outcome)
      : factor(static_cast<T>(outcome.gradient_factor)), smallest(static_cast<T>(least * least)) {}
  // share: the row's mean / mean of all rows; floor: `smallest` as V.
  template <class V>
  [[gnu::always_inline]] constexpr V operator()(V grad, T share, V column, V floor) const {
    const V square = column * share;
    return grad * factor / sqrt(square < floor ? floor : square);
  }
  T factor, smallest;
};

template <class T>
struct ElementRoot {
  constexpr ElementRoot(double least, const StepNumbers& now, const StepOutcome& outcome)
      : factor(static_cast<T>(outcome.gradient_factor)),
        smallest(static_cast<T>(least * least)),
        share(static_cast<T>(now.update.correction1)) {}
  template <class V>
  [[gnu::always_inline]] constexpr void operator()(V& grad, V& v, V floor) const {
    const V g = grad * factor;
    v += (g * g - v) * share;
    grad = g / sqrt(v > floor ? v : floor);
  }
  T factor, smallest, share;
};

}  // namespace
}  // namespace tfm::kernels
