// Value and slope of the activations, for vectors (V) of T on CPUs and for scalars on GPUs. The
// including file defines exp(V), tanh(V), erfc(V) and reciprocal(V) in this namespace beforehand.
#include "kernels/activation.h"

namespace tfm::kernels {
namespace {

// Upper tail of the standard normal distribution times 2 e^(z^2), z = |x| / sqrt(2): t * R(t) with
// t = 1 / (1 + z/2). R is a Chebyshev fit on t in (0, 1] with an error of 5e-9.
template <class V>
[[gnu::always_inline]] constexpr V scaled_tail(V t) {
  V p = t * 0.0431730659f - 0.2346054907f;
  p = p * t + 0.4933857420f;
  p = p * t - 0.4545637183f;
  p = p * t + 0.1318500403f;
  p = p * t - 0.0590509101f;
  p = p * t + 0.0934147485f;
  p = p * t + 0.1753240754f;
  p = p * t + 0.2468838798f;
  p = p * t + 0.2820937768f;
  p = p * t + 0.2820947951f;
  return p * t;
}

// act(x) and its derivative.
template <class V>
struct Point {
  V value, slope;
};

constexpr double kClampedGain = 1.702;
template <class T>
constexpr T kClampedLimit = T{7};

// What act(gate) is multiplied by.
template <Activation Kind, class T, class V>
[[gnu::always_inline]] constexpr V lifted(V up) {
  if constexpr (Kind == Activation::clamped) {
    const V most = V{} + kClampedLimit<T>, x = up > most ? most : up;
    return T{1} + (x < -most ? -most : x);
  } else {
    return up;
  }
}
// d times the derivative of that.
template <Activation Kind, class T, class V>
[[gnu::always_inline]] constexpr V lifted_gradient(V up, V d) {
  if constexpr (Kind == Activation::clamped) {
    const V most = V{} + kClampedLimit<T>;
    return up > most ? V{} : up < -most ? V{} : d;
  } else {
    return d;
  }
}

// Distribution function and density of the standard normal.
template <class V>
struct Normal {
  V below, density;
};
template <class T, class V>
[[gnu::always_inline]] constexpr Normal<V> normal_at(V x) {
  const V e = exp(x * x * static_cast<T>(-0.5)),
          density = e * static_cast<T>(0.39894228040143267794);
  if constexpr (sizeof(T) == 8) {
    return {erfc(x * -0.70710678118654752440) * 0.5, density};
  } else {
    const V z = (x < V{} ? -x : x) * 0.70710678f,
            tail = scaled_tail(reciprocal(z * 0.5f + 1.0f)) * e * 0.5f;
    return {x < V{} ? tail : 1.0f - tail, density};
  }
}

template <class T, class V>
[[gnu::always_inline]] constexpr V sigmoid(V x) {
  return reciprocal(T{1} + exp(-x));
}

template <Activation Kind, class T, class V>
[[gnu::always_inline]] constexpr Point<V> point(V x) {
  if constexpr (Kind == Activation::relu) {
    return {x < V{} ? V{} : x, x > V{} ? V{} + T{1} : V{}};
  } else if constexpr (Kind == Activation::silu) {
    const V s = sigmoid<T>(x);
    return {x * s, s + x * s * (T{1} - s)};
  } else if constexpr (Kind == Activation::clamped) {
    constexpr T k = static_cast<T>(kClampedGain);
    const V g = x > V{} + kClampedLimit<T> ? V{} + kClampedLimit<T> : x, s = sigmoid<T>(g * k);
    return {g * s, x > V{} + kClampedLimit<T> ? V{} : s + g * s * (T{1} - s) * k};
  } else if constexpr (Kind == Activation::tanh) {
    const V t = tanh(x);
    return {t, T{1} - t * t};
  } else if constexpr (Kind == Activation::gelu) {
    const auto n = normal_at<T>(x);
    return {x * n.below, n.below + x * n.density};
  } else {  // x/2 (1 + tanh u) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3)
    constexpr T k = static_cast<T>(2 * 0.79788456080286535588), cubic = static_cast<T>(0.044715);
    const V square = x * x, s = sigmoid<T>(x * k * (square * cubic + T{1}));
    return {x * s, s + x * s * (T{1} - s) * (k * (square * (3 * cubic) + T{1}))};
  }
}

// Calls f.operator()<kind>().
template <class F>
void with_kind(Activation kind, F&& f) {
  switch (kind) {
    case Activation::relu:
      return f.template operator()<Activation::relu>();
    case Activation::gelu:
      return f.template operator()<Activation::gelu>();
    case Activation::gelu_tanh:
      return f.template operator()<Activation::gelu_tanh>();
    case Activation::silu:
      return f.template operator()<Activation::silu>();
    case Activation::tanh:
      return f.template operator()<Activation::tanh>();
    case Activation::clamped:
      return f.template operator()<Activation::clamped>();
  }
}

}  // namespace
}  // namespace tfm::kernels
