#include "kernels/activation.h"

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_half.h"

namespace tfm::kernels {
namespace {

// Upper tail of the standard normal distribution times 2 e^(z^2), z = |x| / sqrt 2: t * R(t), t = 1 / (1 + z/2). R is a Chebyshev
// fit over all of t in (0, 1] with an error of 5e-9.
TFM_INLINE inline Vec<float> scaled_tail(Vec<float> z) {
  constexpr float r[] = {0.2820947951f, 0.2820937768f,  0.2468838798f, 0.1753240754f,  0.0934147485f, -0.0590509101f,
                         0.1318500403f, -0.4545637183f, 0.4933857420f, -0.2346054907f, 0.0431730659f};
  const Vec<float> t = 1.0f / (z * 0.5f + 1.0f);
  Vec<float> p = t * r[10] + r[9];
#pragma GCC unroll 9
  for (int i = 8; i >= 0; --i) p = p * t + r[i];
  return p * t;
}

template <class T>
struct Point {
  Vec<T> value, slope;
};  // act(x) and its derivative

// Distribution function and density of the standard normal.
template <class T>
struct Normal {
  Vec<T> below, density;
};
TFM_INLINE inline Normal<float> normal_at(Vec<float> x) {
  const Vec<float> e = exp(x * x * -0.5f), z = (x < Vec<float>{} ? -x : x) * 0.70710678f, tail = scaled_tail(z) * e * 0.5f;
  return {x < Vec<float>{} ? tail : 1.0f - tail, e * 0.39894228f};
}
inline Normal<double> normal_at(Vec<double> x) {
  return {lanewise(x, [](double v) { return 0.5 * std::erfc(v * -0.70710678118654752440); }),
          exp(x * x * -0.5) * 0.39894228040143267794};
}

template <class T>
TFM_INLINE inline Vec<T> sigmoid(Vec<T> x) {
  return T{1} / (T{1} + exp(-x));
}

template <Activation Kind, class T>
TFM_INLINE inline Point<T> point(Vec<T> x) {
  if constexpr (Kind == Activation::relu) {
    const auto positive = x > Vec<T>{};
    return {x < Vec<T>{} ? Vec<T>{} : x, positive ? splat(T{1}) : Vec<T>{}};
  } else if constexpr (Kind == Activation::silu) {
    const Vec<T> s = sigmoid<T>(x);
    return {x * s, s + x * s * (T{1} - s)};
  } else if constexpr (Kind == Activation::tanh) {
    const Vec<T> t = lanewise(x, [](T v) { return std::tanh(v); });
    return {t, T{1} - t * t};
  } else if constexpr (Kind == Activation::gelu) {
    const auto n = normal_at(x);
    return {x * n.below, n.below + x * n.density};
  } else {  // x/2 (1 + tanh u) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3)
    constexpr T k = static_cast<T>(2 * 0.79788456080286535588), cubic = static_cast<T>(0.044715);
    const Vec<T> square = x * x, s = sigmoid<T>(x * k * (square * cubic + T{1}));
    return {x * s, s + x * s * (T{1} - s) * (k * (square * (3 * cubic) + T{1}))};
  }
}

template <Activation Kind, class T>
void forward(cpu::Stream& stream, const ActivationArgs<T>& a) {
  if (a.gated) {
    parallel(stream, a.rows, a.rows * a.cols, [&](std::int64_t r) {
      const T *gate = a.x + r * 2 * a.cols, *up = gate + a.cols;
      T* y = a.y + r * a.cols;
      each<T>(a.cols, [&](std::int64_t i, auto m)
                          TFM_INLINE { store(y + i, point<Kind, Wide<T>>(load(gate + i, m)).value * load(up + i, m), m); });
    });
  } else {
    parallel_ranges(stream, a.rows * a.cols, [&](std::int64_t begin, std::int64_t end) {
      each<T>(end - begin, [&](std::int64_t i, auto m)
                               TFM_INLINE { store(a.y + begin + i, point<Kind, Wide<T>>(load(a.x + begin + i, m)).value, m); });
    });
  }
}

template <Activation Kind, bool Accumulate, class T>
void backward(cpu::Stream& stream, const ActivationBackwardArgs<T>& a) {
  auto put = [](T* to, Vec<T> d, auto m) TFM_INLINE {
    if constexpr (Accumulate) d += load(to, m);
    store(to, d, m);
  };
  if (a.gated) {
    parallel(stream, a.rows, a.rows * a.cols, [&](std::int64_t r) {
      const T *gate = a.x + r * 2 * a.cols, *up = gate + a.cols, *dy = a.dy + r * a.cols;
      T *dgate = a.dx + r * 2 * a.cols, *dup = dgate + a.cols;
      each<T>(a.cols, [&](std::int64_t i, auto m) TFM_INLINE {
        const Vec<T> d = load(dy + i, m), u = load(up + i, m);
        const auto p = point<Kind, Wide<T>>(load(gate + i, m));
        put(dgate + i, d * u * p.slope, m);
        put(dup + i, d * p.value, m);
      });
    });
  } else {
    parallel_ranges(stream, a.rows * a.cols, [&](std::int64_t begin, std::int64_t end) {
      const T *x = a.x + begin, *dy = a.dy + begin;
      T* dx = a.dx + begin;
      each<T>(end - begin,
              [&](std::int64_t i, auto m) TFM_INLINE { put(dx + i, load(dy + i, m) * point<Kind, Wide<T>>(load(x + i, m)).slope, m); });
    });
  }
}

// f<kind>() for the kind that is there.
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
  }
}

}  // namespace

template <class T>
void activation(cpu::Stream& stream, const ActivationArgs<T>& a) {
  with_kind(a.kind, [&]<Activation Kind>() { forward<Kind>(stream, a); });
}
template <class T>
void activation_backward(cpu::Stream& stream, const ActivationBackwardArgs<T>& a) {
  with_kind(a.kind, [&]<Activation Kind>() {
    with_flag(a.accumulate, [&](auto accumulate) { backward<Kind, accumulate()>(stream, a); });
  });
}

#define TFM_INSTANTIATE(T)                                          \
  template void activation(cpu::Stream&, const ActivationArgs<T>&); \
  template void activation_backward(cpu::Stream&, const ActivationBackwardArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
