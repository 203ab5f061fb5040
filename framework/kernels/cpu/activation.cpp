#include "kernels/activation.h"

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_half.h"
#include "kernels/cpu/simd_math.h"
#include "kernels/elementwise.h"

namespace tfm::kernels {
namespace {

inline Vec<float> reciprocal(Vec<float> x) { return 1.0f / x; }
inline Vec<double> reciprocal(Vec<double> x) { return 1.0 / x; }
inline Vec<float> tanh(Vec<float> x) {
  return lanewise(x, [](float v) { return std::tanh(v); });
}
inline Vec<double> tanh(Vec<double> x) {
  return lanewise(x, [](double v) { return std::tanh(v); });
}
inline Vec<double> erfc(Vec<double> x) {
  return lanewise(x, [](double v) { return std::erfc(v); });
}

}  // namespace
}  // namespace tfm::kernels

#include "kernels/activation.inl"

namespace tfm::kernels {
namespace {

template <Activation Kind, class T>
void forward(cpu::Stream& stream, const ActivationArgs<T>& a) {
  const std::int64_t next = 2 * a.cols;
  if (a.gated) {
    parallel(stream, a.rows, a.rows * a.cols, [&](std::int64_t r) {
      const T *gate = a.x + r * 2 * a.cols, *up = gate + a.cols;
      T* y = a.y + r * a.cols;
      each<T>(a.cols, [&](std::int64_t i, auto m) TFM_INLINE {
        store(y + i,
              point<Kind, Accum<T>>(load_ahead(gate + i, m, next)).value *
                  lifted<Kind, Accum<T>>(load_ahead(up + i, m, next)),
              m);
      });
    });
  } else {
    parallel_ranges(stream, a.rows * a.cols, [&](std::int64_t begin, std::int64_t end) {
      each<T>(end - begin, [&](std::int64_t i, auto m) TFM_INLINE {
        store(a.y + begin + i, point<Kind, Accum<T>>(load_ahead(a.x + begin + i, m)).value, m);
      });
    });
  }
}

template <Activation Kind, bool Accumulate, class T>
void backward(cpu::Stream& stream, const ActivationBackwardArgs<T>& a) {
  auto put = [](T* to, Vec<T> d, auto m) TFM_INLINE {
    if constexpr (Accumulate) d += load(to, m);
    store(to, d, m);
  };
  const std::int64_t next = 2 * a.cols;
  if (a.gated) {
    parallel(stream, a.rows, a.rows * a.cols, [&](std::int64_t r) {
      const T *gate = a.x + r * 2 * a.cols, *up = gate + a.cols, *dy = a.dy + r * a.cols;
      T *dgate = a.dx + r * 2 * a.cols, *dup = dgate + a.cols;
      each<T>(a.cols, [&](std::int64_t i, auto m) TFM_INLINE {
        const Vec<T> d = load_ahead(dy + i, m, a.cols), u = load_ahead(up + i, m, next);
        const auto p = point<Kind, Accum<T>>(load_ahead(gate + i, m, next));
        put(dgate + i, d * lifted<Kind, Accum<T>>(u) * p.slope, m);
        put(dup + i, lifted_gradient<Kind, Accum<T>>(u, d * p.value), m);
      });
    });
  } else {
    parallel_ranges(stream, a.rows * a.cols, [&](std::int64_t begin, std::int64_t end) {
      const T *x = a.x + begin, *dy = a.dy + begin;
      T* dx = a.dx + begin;
      each<T>(end - begin, [&](std::int64_t i, auto m) TFM_INLINE {
        put(dx + i, load_ahead(dy + i, m) * point<Kind, Accum<T>>(load_ahead(x + i, m)).slope, m);
      });
    });
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
template <class T>
void activation_backward_sum(cpu::Stream& stream, const ActivationBackwardSumArgs<T>& a) {
  const ActivationBackwardArgs<T>& of = a.activation;
  activation_backward(stream, of);
  column_sum(stream, ColumnSumArgs<T>{of.rows, of.cols, of.cols, of.dx, a.sum, a.accumulate_sum});
}

#define TFM_INSTANTIATE(T)                                                           \
  template void activation(cpu::Stream&, const ActivationArgs<T>&);                  \
  template void activation_backward(cpu::Stream&, const ActivationBackwardArgs<T>&); \
  template void activation_backward_sum(cpu::Stream&, const ActivationBackwardSumArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
