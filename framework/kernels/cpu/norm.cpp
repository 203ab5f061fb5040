#include "kernels/norm.h"

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_half.h"

namespace tfm::kernels {
namespace {

template <class T>
Accum<T> row_mean(const T* x, std::int64_t cols) {
  Vec<T> sum{};
  each<T>(cols, [&](std::int64_t i, auto m) TFM_INLINE { sum += load(x + i, m); });
  return sum_of<T>(sum) / static_cast<Accum<T>>(cols);
}

template <class T>
Accum<T> row_square_mean(const T* x, Accum<T> mean, std::int64_t cols) {  // of x - mean
  Vec<T> sum{};
  each<T>(cols, [&](std::int64_t i, auto m) TFM_INLINE {
    const Vec<T> d = only<T>(load_ahead(x + i, m, cols) - mean, m);
    sum += d * d;
  });
  return sum_of<T>(sum) / static_cast<Accum<T>>(cols);
}

template <class Args, class Lanes>
TFM_INLINE inline auto gain_at(const Args& a, std::int64_t i, Lanes m) {
  return load(a.gain + i, m) + a.gain_offset;
}

// Adds one row to the partial sums of gain and shift and yields the means of h and h * n, where h =
// gain * dy, n = (x - mean) * rstd.
template <class T>
struct RowMeans {
  Accum<T> h, hn;
};
template <class T>
RowMeans<T> backward_sums(const NormBackwardArgs<T>& a, const T* x, const T* dy, Accum<T> mean,
                          Accum<T> rstd, Accum<T>* dgain, Accum<T>* dshift) {
  Vec<T> sum_h{}, sum_hn{};
  each<T>(a.cols, [&](std::int64_t i, auto m) TFM_INLINE {
    const Vec<T> g = load_ahead(dy + i, m, a.cols),
                 n = (load_ahead(x + i, m, a.cols) - mean) * rstd, h = g * gain_at(a, i, m);
    sum_h += h;
    sum_hn += h * n;
    store(dgain + i, load(dgain + i, m) + g * n, m);
    if (dshift) store(dshift + i, load(dshift + i, m) + g, m);
  });
  return {a.rms ? Accum<T>{0} : sum_of<T>(sum_h) / static_cast<Accum<T>>(a.cols),
          sum_of<T>(sum_hn) / static_cast<Accum<T>>(a.cols)};
}

template <class T>
void backward_row(const NormBackwardArgs<T>& a, const T* x, const T* dy, Accum<T> mean,
                  Accum<T> rstd, RowMeans<T> s, T* dx) {
  each<T>(a.cols, [&](std::int64_t i, auto m) TFM_INLINE {
    const Vec<T> n = (load(x + i, m) - mean) * rstd, h = load(dy + i, m) * gain_at(a, i, m);
    const Vec<T> d = (h - s.h - n * s.hn) * rstd;
    store(dx + i, a.accumulate_dx ? load(dx + i, m) + d : d, m);
  });
}

template <class T>
void add_blocks(const T* partial, std::int64_t count, std::int64_t step, std::int64_t cols, T* y,
                bool accumulate) {
  each<T>(cols, [&](std::int64_t i, auto m) TFM_INLINE {
    Vec<T> sum{};
    for (std::int64_t b = 0; b < count; ++b) sum += load(partial + b * step + i, m);
    store(y + i, accumulate ? load(y + i, m) + sum : sum, m);
  });
}

}  // namespace

template <class T>
void norm(cpu::Stream& stream, const NormArgs<T>& a) {
  parallel(stream, a.rows, a.rows * a.cols, [&](std::int64_t r) {
    const std::int64_t at = a.places(r, a.cols);
    const T* x = a.x + at;
    T* y = a.y + at;
    const Accum<T> mean = a.rms ? Accum<T>{0} : row_mean(x, a.cols);
    const auto square = static_cast<double>(row_square_mean(x, mean, a.cols));
    const auto rstd = static_cast<Accum<T>>(
        1 / (a.eps_outside ? std::sqrt(square * unbiased_share<double>(a.cols, a.rms)) + a.eps
                           : std::sqrt(square + a.eps)));
    if (!a.rms && a.mean) a.mean[r] = mean;
    if (a.rstd) a.rstd[r] = rstd;
    if (a.shift)
      each<T>(a.cols, [&](std::int64_t i, auto m) TFM_INLINE {
        store(y + i, (load(x + i, m) - mean) * rstd * gain_at(a, i, m) + load(a.shift + i, m), m);
      });
    else
      each<T>(a.cols, [&](std::int64_t i, auto m) TFM_INLINE {
        store(y + i, (load(x + i, m) - mean) * rstd * gain_at(a, i, m), m);
      });
  });
}

template <class T>
void norm_backward(cpu::Stream& stream, const NormBackwardArgs<T>& a) {
  const RowBlocks blocks(a.rows);
  const std::int64_t width = round_up(a.cols, kLanes<T>), step = 2 * width;
  Accum<T>* partial = scratch<Accum<T>, struct PartialSums>(blocks.count * step);
  parallel(stream, blocks.count, a.rows * a.cols, [&](std::int64_t b) {
    Accum<T>*dgain = partial + b * step, *dshift = a.dshift ? dgain + width : nullptr;
    std::fill_n(dgain, step, Accum<T>{0});
    for (std::int64_t r = blocks.begin(b); r < blocks.end(b); ++r) {
      const std::int64_t at = a.places(r, a.cols);
      const T *x = a.x + at, *dy = a.dy + at;
      const Accum<T> mean = a.rms ? Accum<T>{0} : a.mean[r], rstd = a.rstd[r];
      RowMeans<T> s = backward_sums(a, x, dy, mean, rstd, dgain, dshift);
      if (a.eps_outside) s.hn *= slope_factor(a, rstd);
      if (a.dx) backward_row(a, x, dy, mean, rstd, s, a.dx + at);
    }
  });
  if (a.dgain) add_blocks(partial, blocks.count, step, a.cols, a.dgain, a.accumulate_dgain);
  if (a.dshift)
    add_blocks(partial + width, blocks.count, step, a.cols, a.dshift, a.accumulate_dshift);
}

template <class T>
void add_norm(cpu::Stream& stream, const AddNormArgs<T>& a) {
  dropout_add(stream, a.add);
  norm(stream, a.norm);
}

#define TFM_INSTANTIATE(T)                                     \
  template void norm(cpu::Stream&, const NormArgs<T>&);        \
  template void add_norm(cpu::Stream&, const AddNormArgs<T>&); \
  template void norm_backward(cpu::Stream&, const NormBackwardArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
