#include "kernels/muon.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_half.h"
#include "kernels/elementwise.h"
#include "kernels/muon.inl"

namespace tfm::kernels {
namespace {

template <class T>
double sum_of_squares(cpu::Stream& stream, std::int64_t n, const T* x) {
  const std::int64_t blocks = ceil_div(n, kRange);
  double* sums = scratch<double, struct Squares>(std::max<std::int64_t>(1, blocks));
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

}  // namespace

template <class T, class P>
void momentum(cpu::Stream& stream, const MomentumArgs<T, P>& a) {
  if (a.outcome->applied == 0) return;
  const Momentum<T> step(a.momentum, a.nesterov, *a.outcome);
  with_flag(a.nesterov, [&](auto nesterov) {
    for (const PartElements<T, P>& r : a.ranges)
      parallel_ranges(stream, r.n, [&](std::int64_t begin, std::int64_t end) {
        each<T>(end - begin, [&](std::int64_t i, auto mask) TFM_INLINE {
          const std::int64_t at = begin + i;
          Vec<T> grad = load(r.grad + at, mask), m = load(r.m + at, mask);
          step(grad, m, nesterov);
          store(r.m + at, m, mask);
          store(r.grad + at, grad, mask);
        });
      });
  });
}

template <class T>
void normalize(cpu::Stream& stream, const NormalizeArgs<T>& a) {
  const double norm = std::sqrt(sum_of_squares(stream, a.n, a.x));
  copy(stream, CopyArgs<T>{a.n, a.x, a.x, false, static_cast<T>(1 / std::max(norm, a.least))});
}

#define TFM_INSTANTIATE(T, P) template void momentum(cpu::Stream&, const MomentumArgs<T, P>&);
TFM_UPDATES(TFM_INSTANTIATE)
template void normalize(cpu::Stream&, const NormalizeArgs<float>&);
template void normalize(cpu::Stream&, const NormalizeArgs<double>&);

}  // namespace tfm::kernels
