#include "kernels/short_convolution.h"

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_half.h"
#include "kernels/cpu/simd_math.h"

namespace tfm::kernels {
namespace {

template <class T>
TFM_INLINE inline Vec<T> sigmoid(Vec<T> x) {
  return Accum<T>{1} / (Accum<T>{1} + exp(-x));
}

// A vector of columns from `column` on: its weights, one vector after the other, its biases, and
// its sums.
template <class T, class Mask>
struct Strip {
  using W = Accum<T>;
  const ShortConvolutionArgs<T>& a;
  std::int64_t column;
  Mask mask;
  W weight[kLongestConvolution * kLanes<T>], bias[kLanes<T>];

  Strip(const ShortConvolutionArgs<T>& args, std::int64_t first, std::int64_t cols, Mask m)
      : a(args), column(first), mask(m), weight{}, bias{} {
    for (std::int64_t c = 0; c < cols; ++c)
      for (int k = 0; k < a.kernel; ++k)
        weight[k * kLanes<T> + c] = W(a.weight[(column + c) * a.kernel + k]);
    for (std::int64_t c = 0; a.bias && c < cols; ++c) bias[c] = W(a.bias[column + c]);
  }
  Vec<T> factor(int k) const { return load(weight + k * kLanes<T>, Full{}); }
  const T* input(std::int64_t row) const { return a.x + row * a.cols + column; }
  // Number of positions before t, at most K - 1, of its segment.
  int before(std::int64_t sequence, std::int64_t t) const {
    const std::int64_t row = sequence * a.length + t;
    int n = 0;
    while (n < a.kernel - 1 && n < t && (!a.segments || a.segments[row - n - 1] == a.segments[row]))
      ++n;
    return n;
  }
  Vec<T> sum(std::int64_t sequence, std::int64_t t) const {
    Vec<T> s = load(bias, Full{});
    const std::int64_t row = sequence * a.length + t;
    const int n = before(sequence, t);
    if (const int kept = a.kernel - 1; a.state && t < kept)
      for (std::int64_t back = kept; back > t; --back)
        s += factor(static_cast<int>(kept - back)) *
             load(a.state + (sequence * kept + kept - back + t) * a.cols + column, mask);
    for (int back = n; back >= 0; --back)
      s += factor(a.kernel - 1 - back) * load(input(row - back), mask);
    return s;
  }
  void keep(std::int64_t sequence) const {
    const std::int64_t kept = a.kernel - 1;
    T* const state = a.state + sequence * kept * a.cols + column;
    for (std::int64_t i = 0; i < kept; ++i) {
      const std::int64_t t = a.length - kept + i;
      const T* const from = t < 0 ? state + (kept + t) * a.cols : input(sequence * a.length + t);
      store(state + i * a.cols, load(from, mask), mask);
    }
  }
};

// Calls f(strip, number of its columns) for all strips of vectors.
template <class T, class F>
void each_strip(cpu::Stream& stream, const ShortConvolutionArgs<T>& a, F&& f) {
  const std::int64_t strips = ceil_div(a.cols, kLanes<T>);
  parallel(stream, strips, a.sequences * a.length * a.cols, [&](std::int64_t s) {
    const std::int64_t first = s * kLanes<T>,
                       cols = std::min<std::int64_t>(a.cols - first, kLanes<T>);
    if (cols == kLanes<T>)
      f(Strip<T, Full>(a, first, cols, {}), cols);
    else
      f(Strip<T, FirstLanes>(a, first, cols, {static_cast<int>(cols)}), cols);
  });
}

}  // namespace

template <class T>
void short_convolution(cpu::Stream& stream, const ShortConvolutionArgs<T>& a) {
  each_strip(stream, a, [&](const auto& strip, std::int64_t) {
    for (std::int64_t b = 0; b < a.sequences; ++b) {
      for (std::int64_t t = 0; t < a.length; ++t) {
        const Vec<T> s = strip.sum(b, t);
        store(a.y + (b * a.length + t) * a.cols + strip.column, s * sigmoid<T>(s), strip.mask);
      }
      if (a.state) strip.keep(b);
    }
  });
}

template <class T>
void short_convolution_backward(cpu::Stream& stream, const ShortConvolutionBackwardArgs<T>& g) {
  using W = Accum<T>;
  const ShortConvolutionArgs<T>& a = g.forward;
  each_strip(stream, a, [&](const auto& strip, std::int64_t cols) {
    const auto mask = strip.mask;
    W sums[kLongestConvolution * kLanes<T>] = {}, of_bias[kLanes<T>] = {};  // their gradients
    // Gradients of positions of a sequence, and as many zeros after it as it reads.
    W* const d = scratch<W, struct Gradients>((a.length + kLongestConvolution) * kLanes<T>);
    for (std::int64_t b = 0; b < a.sequences; ++b) {
      for (std::int64_t t = 0; t < a.length; ++t) {
        const std::int64_t row = b * a.length + t;
        const Vec<T> s = strip.sum(b, t), f = sigmoid<T>(s),
                     ds = load(g.dy + row * a.cols + strip.column, mask) * (f + s * f * (W{1} - f));
        store(d + t * kLanes<T>, ds, Full{});
        store(of_bias, load(of_bias, Full{}) + ds, Full{});
        for (int back = strip.before(b, t); back >= 0; --back) {
          W* const to = sums + (a.kernel - 1 - back) * kLanes<T>;
          store(to, load(to, Full{}) + ds * load(strip.input(row - back), mask), Full{});
        }
      }
      for (std::int64_t t = 0; g.dx && t < a.length; ++t) {
        T* const to = g.dx + (b * a.length + t) * a.cols + strip.column;
        Vec<T> sum = g.adds_x ? load(to, mask) : Vec<T>{};
        for (int ahead = 0; ahead < a.kernel && t + ahead < a.length; ++ahead)
          if (strip.before(b, t + ahead) >= ahead)
            sum += strip.factor(a.kernel - 1 - ahead) * load(d + (t + ahead) * kLanes<T>, Full{});
        store(to, sum, mask);
      }
    }
    for (std::int64_t c = 0; g.dweight && c < cols; ++c)
      for (int k = 0; k < a.kernel; ++k) {
        W& to = g.dweight[(strip.column + c) * a.kernel + k];
        to = sums[k * kLanes<T> + c] + (g.adds_weight ? to : W{0});
      }
    for (std::int64_t c = 0; g.dbias && c < cols; ++c) {
      W& to = g.dbias[strip.column + c];
      to = of_bias[c] + (g.adds_bias ? to : W{0});
    }
  });
}

#define TFM_INSTANTIATE(T)                                                       \
  template void short_convolution(cpu::Stream&, const ShortConvolutionArgs<T>&); \
  template void short_convolution_backward(cpu::Stream&, const ShortConvolutionBackwardArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
