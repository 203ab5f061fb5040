#include "kernels/part_update.h"

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_half.h"

namespace tfm::kernels {
namespace {

constexpr std::int64_t kStrip = 64;  // columns whose sums are kept together

// f(row, first column, count) for each row of a range.
template <class T, class F>
void each_row(cpu::Stream& stream, const MatrixRange<T>& a, F&& f) {
  const std::int64_t row = a.first / a.cols, rows = ceil_div(a.first + a.n, a.cols) - row;
  parallel(stream, rows, a.n, [&](std::int64_t r) {
    const std::int64_t begin = std::max(a.first, (row + r) * a.cols),
                       end = std::min(a.first + a.n, (row + r + 1) * a.cols);
    f(row + r, begin - (row + r) * a.cols, end - begin);
  });
}

}  // namespace

template <class T>
double sum_of_squares(cpu::Stream& stream, std::int64_t n, const T* x) {
  const std::int64_t blocks = ceil_div(n, kRange);
  double* sums = scratch<double, 16>(std::max<std::int64_t>(1, blocks));
  parallel_ranges(stream, n, [&](std::int64_t begin, std::int64_t end) {
    double lane[8] = {};
    for (std::int64_t i = begin; i < end; ++i)
      lane[(i - begin) % 8] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    sums[begin / kRange] =
        ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
  });
  double sum = 0;
  for (std::int64_t b = 0; b < blocks; ++b) sum += sums[b];
  return sum;
}

template <class T>
void adam_direction(cpu::Stream& stream, const AdamDirectionArgs<T>& a) {
  const T toward = static_cast<T>(1 - a.rule.beta1), beta2 = static_cast<T>(a.rule.beta2),
          square = static_cast<T>(1 - a.rule.beta2),
          mean = static_cast<T>(1 / a.numbers.correction1),
          root = static_cast<T>(1 / std::sqrt(a.numbers.correction2)),
          eps = static_cast<T>(a.rule.eps), decay = static_cast<T>(a.rule.decay),
          factor = static_cast<T>(a.gradient_factor);
  parallel_ranges(stream, a.n, [&](std::int64_t begin, std::int64_t end) {
    each<T>(end - begin, [&](std::int64_t i, auto mask) TFM_INLINE {
      const std::int64_t at = begin + i;
      const Vec<T> g = load(a.grad + at, mask) * factor;
      Vec<T> m = load(a.m + at, mask), v = load(a.v + at, mask);
      m += (g - m) * toward;
      v = v * beta2 + g * g * square;
      store(a.m + at, m, mask);
      store(a.v + at, v, mask);
      store(a.grad + at, m * mean / (sqrt(v) * root + eps) + load(a.param + at, mask) * decay,
            mask);
    });
  });
}

template <class T, class P>
void descend(cpu::Stream& stream, const DescendArgs<T, P>& a) {
  const T shrink = static_cast<T>(a.shrink), step = static_cast<T>(a.step),
          rate = static_cast<T>(1 - a.keep);
  parallel_ranges(stream, a.n, [&](std::int64_t begin, std::int64_t end) {
    each<T>(end - begin, [&](std::int64_t i, auto mask) TFM_INLINE {
      const std::int64_t at = begin + i;
      const Vec<T> p = load(a.param + at, mask) * shrink - load(a.direction + at, mask) * step;
      store(a.param + at, p, mask);
      if (a.rounded) store(a.rounded + at, p, mask);
      if (a.average) {
        const Vec<T> old = load(a.average + at, mask);
        store(a.average + at, old + (p - old) * rate, mask);
      }
    });
  });
}

template <class T>
void add_squares(cpu::Stream& stream, const MatrixRange<T>& a, double scale, std::int64_t* rows,
                 std::int64_t* columns) {
  const auto square = [&](T x) {
    const double g = static_cast<double>(x * static_cast<T>(a.gradient_factor));
    return static_cast<std::int64_t>(g * g * scale);
  };
  each_row(stream, a, [&](std::int64_t row, std::int64_t column, std::int64_t n) {
    const T* x = a.grad + row * a.cols + column - a.first;
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += square(x[i]);
    rows[row] += sum;
  });
  parallel(stream, ceil_div(a.cols, kStrip), a.n, [&](std::int64_t strip) {
    const std::int64_t end = a.first + a.n;
    for (std::int64_t row = a.first / a.cols; row * a.cols < end; ++row) {
      const std::int64_t at = row * a.cols, from = std::max(strip * kStrip, a.first - at),
                         to = std::min({(strip + 1) * kStrip, a.cols, end - at});
      for (std::int64_t c = from; c < to; ++c) columns[c] += square(a.grad[at + c - a.first]);
    }
  });
}

template <class T>
void divide_by_root(cpu::Stream& stream, const MatrixRange<T>& a, const T* rows, const T* columns,
                    T mean, double least) {
  const T factor = static_cast<T>(a.gradient_factor), smallest = static_cast<T>(least * least);
  each_row(stream, a, [&](std::int64_t row, std::int64_t column, std::int64_t n) {
    T* x = a.grad + row * a.cols + column - a.first;
    const T share = rows[row] / mean;
    for (std::int64_t i = 0; i < n; ++i)
      x[i] = x[i] * factor / std::sqrt(std::max(share * columns[column + i], smallest));
  });
}

template <class T>
void divide_by_root(cpu::Stream& stream, const DivideByRootArgs<T>& a) {
  const T factor = static_cast<T>(a.gradient_factor), smallest = static_cast<T>(a.least * a.least),
          share = static_cast<T>(a.share);
  parallel_ranges(stream, a.n, [&](std::int64_t begin, std::int64_t end) {
    each<T>(end - begin, [&](std::int64_t i, auto mask) TFM_INLINE {
      const std::int64_t at = begin + i;
      const Vec<T> g = load(a.grad + at, mask) * factor;
      Vec<T> v = load(a.v + at, mask);
      v += (g * g - v) * share;
      store(a.v + at, v, mask);
      const Vec<T> floor = splat(smallest);
      store(a.grad + at, g / sqrt(v > floor ? v : floor), mask);
    });
  });
}

template <class T>
void momentum(cpu::Stream& stream, const MomentumArgs<T>& a) {
  const T factor = static_cast<T>(a.gradient_factor), toward = static_cast<T>(1 - a.momentum),
          ahead = static_cast<T>(a.momentum);
  parallel_ranges(stream, a.n, [&](std::int64_t begin, std::int64_t end) {
    each<T>(end - begin, [&](std::int64_t i, auto mask) TFM_INLINE {
      const std::int64_t at = begin + i;
      const Vec<T> g = load(a.grad + at, mask) * factor;
      Vec<T> m = load(a.m + at, mask);
      m += (g - m) * toward;
      store(a.m + at, m, mask);
      store(a.grad + at, a.nesterov ? g + (m - g) * ahead : m, mask);
    });
  });
}

#define TFM_INSTANTIATE(T, P) template void descend(cpu::Stream&, const DescendArgs<T, P>&);
TFM_UPDATES(TFM_INSTANTIATE)
#undef TFM_INSTANTIATE
#define TFM_INSTANTIATE(T)                                                                 \
  template double sum_of_squares(cpu::Stream&, std::int64_t, const T*);                    \
  template void adam_direction(cpu::Stream&, const AdamDirectionArgs<T>&);                 \
  template void add_squares(cpu::Stream&, const MatrixRange<T>&, double, std::int64_t*,    \
                            std::int64_t*);                                                \
  template void divide_by_root(cpu::Stream&, const MatrixRange<T>&, const T*, const T*, T, \
                               double);                                                    \
  template void divide_by_root(cpu::Stream&, const DivideByRootArgs<T>&);                  \
  template void momentum(cpu::Stream&, const MomentumArgs<T>&);
TFM_INSTANTIATE(float)
TFM_INSTANTIATE(double)

}  // namespace tfm::kernels
