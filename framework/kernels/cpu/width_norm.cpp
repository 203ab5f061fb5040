#include "kernels/width_norm.h"

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_half.h"

namespace tfm::kernels {

template <class T>
void row_sums(cpu::Stream& stream, const RowSumsArgs<T>& a) {
  parallel(stream, a.of.rows, a.of.rows * a.of.cols, [&](std::int64_t r) {
    const T *x = a.x + r * a.of.stride, *dy = a.dy ? a.dy + r * a.of.stride : nullptr;
    Vec<T> sum{};
    if (dy)
      each<T>(a.of.cols, [&](std::int64_t i, auto m) TFM_INLINE {
        sum += load(x + i, m) * (load(a.gain + i, m) * load(dy + i, m));
      });
    else
      each<T>(a.of.cols, [&](std::int64_t i, auto m) TFM_INLINE {
        const Vec<T> v = load(x + i, m);
        sum += v * v;
      });
    a.sums[r] = sum_of<T>(sum);
  });
}

template <class T>
void width_norm(cpu::Stream& stream, const WidthNormArgs<T>& a) {
  parallel(stream, a.of.rows, a.of.rows * a.of.cols, [&](std::int64_t r) {
    const T* x = a.x + r * a.of.stride;
    T* y = a.y + r * a.of.stride;
    const Accum<T> rstd = a.rstd(r);
    each<T>(a.of.cols, [&](std::int64_t i, auto m) TFM_INLINE {
      store(y + i, load(x + i, m) * rstd * load(a.gain + i, m), m);
    });
  });
}

template <class T>
void width_norm_backward(cpu::Stream& stream, const WidthNormBackwardArgs<T>& a) {
  const WidthNormArgs<T>& f = a.forward;
  const RowBlocks blocks(f.of.rows);
  const std::int64_t width = round_up(f.of.cols, kLanes<T>);
  Accum<T>* partial = scratch<Accum<T>, struct PartialGains>(blocks.count * width);
  parallel(stream, blocks.count, f.of.rows * f.of.cols, [&](std::int64_t b) {
    Accum<T>* dgain = partial + b * width;
    std::fill_n(dgain, width, Accum<T>{0});
    for (std::int64_t r = blocks.begin(b); r < blocks.end(b); ++r) {
      const T *x = f.x + r * f.of.stride, *dy = a.dy + r * f.of.stride;
      T* dx = a.dx ? a.dx + r * f.of.stride : nullptr;
      const Accum<T> rstd = f.rstd(r),
                     share = rstd * rstd * a.products[r] / static_cast<Accum<T>>(f.width);
      each<T>(f.of.cols, [&](std::int64_t i, auto m) TFM_INLINE {
        const Vec<T> v = load(x + i, m), g = load(dy + i, m);
        store(dgain + i, load(dgain + i, m) + g * v * rstd, m);
        if (!dx) return;
        const Vec<T> d = (g * load(f.gain + i, m) - v * share) * rstd;
        store(dx + i, a.accumulate_dx ? load(dx + i, m) + d : d, m);
      });
    }
  });
  if (a.dgain)
    each<T>(f.of.cols, [&](std::int64_t i, auto m) TFM_INLINE {
      Vec<T> sum{};
      for (std::int64_t b = 0; b < blocks.count; ++b) sum += load(partial + b * width + i, m);
      store(a.dgain + i, a.accumulate_dgain ? load(a.dgain + i, m) + sum : sum, m);
    });
}

#define TFM_INSTANTIATE(T)                                         \
  template void row_sums(cpu::Stream&, const RowSumsArgs<T>&);     \
  template void width_norm(cpu::Stream&, const WidthNormArgs<T>&); \
  template void width_norm_backward(cpu::Stream&, const WidthNormBackwardArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
