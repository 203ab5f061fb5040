// Activations: each pack of eight elements is read once, computed in Accum<T> and written once.
#include <cmath>

#include "kernels/activation.h"
#include "kernels/cuda/column_sum.h"

namespace tfm::kernels {
namespace {

// The error of the argument's rounding is relative to a result that is small where the argument is
// large.
__device__ inline float exp(float x) { return cuda::exp2_approximate(x * 1.44269504f); }
__device__ inline double exp(double x) { return ::exp(x); }
__device__ inline float reciprocal(float x) { return cuda::reciprocal_approximate(x); }
__device__ inline double reciprocal(double x) { return 1 / x; }
__device__ inline float tanh(float x) { return ::tanhf(x); }
__device__ inline double tanh(double x) { return ::tanh(x); }
__device__ inline double erfc(double x) { return ::erfc(x); }

}  // namespace
}  // namespace tfm::kernels

#include "kernels/activation.inl"

namespace tfm::kernels {
namespace {

// With constant factors merged: the instructions of exact GELU take as long as its memory accesses.
// CPUs and doubles use the template.
template <>
__device__ inline Normal<float> normal_at<float, float>(float x) {
  const float e = cuda::exp2_approximate(x * x * (-0.5f * 1.44269504f)),
              t = reciprocal(std::abs(x) * (0.5f * 0.70710678f) + 1.0f),
              tail = scaled_tail(t) * e * 0.5f;
  return {x < 0 ? tail : 1.0f - tail, e * 0.39894228f};
}

template <Activation Kind, class T>
struct Forward {
  ActivationArgs<T> a;
  template <class P>
  __device__ void operator()(std::int64_t at, P part) const {
    const auto x = load_pack(a.x + at, part);
    Accum<T> y[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) y[i] = point<Kind, Accum<T>>(x[i]).value;
    store_pack(a.y + at, part, y);
  }
};

template <Activation Kind, class T>
struct GatedForward {
  ActivationArgs<T> a;
  __device__ void operator()(std::int64_t row, std::int64_t c, Part part) const {
    const T* gate = a.x + row * 2 * a.cols + c;
    const auto g = load_pack(gate, part), up = load_pack(gate + a.cols, part);
    Accum<T> y[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i)
      y[i] = point<Kind, Accum<T>>(g[i]).value * lifted<Kind, Accum<T>>(up[i]);
    store_pack(a.y + row * a.cols + c, part, y);
  }
};

template <Activation Kind, class T>
struct Backward {
  ActivationBackwardArgs<T> a;
  // A source of column_sum(), of the packs as they are stored.
  static constexpr int kTogether = 2, kBlocks = sizeof(T) == 2 ? 4 : 0;
  struct Loaded {
    Eight<T> x, dy;
    __device__ void gradient(Accum<T> (&dx)[kPack]) const {
      TFM_UNROLL
      for (int i = 0; i < kPack; ++i) dx[i] = dy[i] * point<Kind, Accum<T>>(x[i]).slope;
    }
  };
  __device__ bool aligned() const {
    return misalignment(a.x) == 0 && misalignment(a.dy) == 0 && misalignment(a.dx) == 0;
  }
  template <class P>
  __device__ Loaded load(std::int64_t at, P part) const {
    return {load_pack(a.x + at, part), load_pack(a.dy + at, part)};
  }
  template <class P>
  __device__ Eight<T> pack(std::int64_t at, P part, const Loaded& loaded) const {
    Accum<T> dx[kPack];
    loaded.gradient(dx);
    store_pack(a.dx + at, part, dx);
    return narrow_pack<T>(dx);
  }
  template <class P>
  __device__ void operator()(std::int64_t at, P part) const {
    Accum<T> dx[kPack];
    load(at, part).gradient(dx);
    store_pack(a.dx + at, part, dx, a.accumulate);
  }
};

template <Activation Kind, class T>
struct GatedBackward {
  ActivationBackwardArgs<T> a;
  __device__ void operator()(std::int64_t row, std::int64_t c, Part part) const {
    const T* gate = a.x + row * 2 * a.cols + c;
    T* dgate = a.dx + row * 2 * a.cols + c;
    const auto g = load_pack(gate, part), up = load_pack(gate + a.cols, part),
               dy = load_pack(a.dy + row * a.cols + c, part);
    Accum<T> dg[kPack], dup[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) {
      const auto p = point<Kind, Accum<T>>(g[i]);
      dg[i] = dy[i] * lifted<Kind, Accum<T>>(up[i]) * p.slope;
      dup[i] = lifted_gradient<Kind, Accum<T>>(up[i], dy[i] * p.value);
    }
    store_pack(dgate, part, dg, a.accumulate);
    store_pack(dgate + a.cols, part, dup, a.accumulate);
  }
};

}  // namespace

template <class T>
void activation(cuda::Stream& stream, const ActivationArgs<T>& a) {
  with_kind(a.kind, [&]<Activation Kind>() {
    if (a.gated)
      over_rows(stream, a.rows, a.cols, GatedForward<Kind, T>{a});
    else
      over_array(stream, a.y, a.rows * a.cols, Forward<Kind, T>{a}, a.x);
  });
}
template <class T>
void activation_backward(cuda::Stream& stream, const ActivationBackwardArgs<T>& a) {
  with_kind(a.kind, [&]<Activation Kind>() {
    if (a.gated)
      over_rows(stream, a.rows, a.cols, GatedBackward<Kind, T>{a});
    else
      over_array(stream, a.dx, a.rows * a.cols, Backward<Kind, T>{a}, a.x, a.dy);
  });
}
template <class T>
void activation_backward_sum(cuda::Stream& stream, const ActivationBackwardSumArgs<T>& a) {
  const ActivationBackwardArgs<T>& of = a.activation;
  TFM_CHECK(!of.gated && !of.accumulate, "columns are summed as they are stored");
  const ColumnSumArgs<T> sum{of.rows, of.cols, of.cols, of.dx, a.sum, a.accumulate_sum};
  with_kind(of.kind, [&]<Activation Kind>() { column_sum(stream, sum, Backward<Kind, T>{of}); });
}

#define TFM_INSTANTIATE(T)                                                            \
  template void activation(cuda::Stream&, const ActivationArgs<T>&);                  \
  template void activation_backward(cuda::Stream&, const ActivationBackwardArgs<T>&); \
  template void activation_backward_sum(cuda::Stream&, const ActivationBackwardSumArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
