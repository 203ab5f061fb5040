#include "kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_half.h"
#include "kernels/cpu/simd_math.h"

namespace tfm::kernels {
namespace {

constexpr std::int64_t kPiece = 1024;  // columns summed in T before the sum moves on to double

// Column of the row's label in this part of the vocabulary, or -1.
template <class T>
std::int64_t label_column(const CrossEntropyArgs<T>& a, std::int64_t r) {
  const std::int64_t c = a.labels[r] - a.vocab_begin;
  return a.labels[r] >= 0 && c >= 0 && c < a.cols ? c : -1;
}

template <class T>
Accum<T> max_of_row(const T* x, std::int64_t cols) {
  constexpr Accum<T> lowest = -std::numeric_limits<Accum<T>>::infinity();
  constexpr int L = kLanes<T>;
  Vec<T> m0 = splat(lowest), m1 = m0, m2 = m0, m3 = m0;
  std::int64_t i = 0;
  for (; i + 4 * L <= cols; i += 4 * L) {
    m0 = larger<T>(load(x + i, Full{}), m0);
    m1 = larger<T>(load(x + i + L, Full{}), m1);
    m2 = larger<T>(load(x + i + 2 * L, Full{}), m2);
    m3 = larger<T>(load(x + i + 3 * L, Full{}), m3);
  }
  each<T>(cols - i, [&](std::int64_t j, auto m)
                        TFM_INLINE { m0 = larger<T>(only<T>(load(x + i + j, m), m, lowest), m0); });
  return max_of<T>(larger<T>(larger<T>(m0, m1), larger<T>(m2, m3)));
}

// Several passes over a row, which stays in the second-level cache. Its exp(x - max) go to `kept`
// (cols), where there is one.
template <class T>
void statistics_of_row(const CrossEntropyArgs<T>& a, std::int64_t r, Accum<T>* kept = nullptr) {
  const T* row = a.logits + r * a.stride;
  const Accum<T> max = a.max[r] = max_of_row(row, a.cols);
  double exps = 0, logits = 0;
  for (std::int64_t c = 0; c < a.cols; c += kPiece) {
    const T* x = row + c;
    Vec<T> e{}, s{};
    with_flag(kept, [&](auto keep) {
      each<T>(std::min(kPiece, a.cols - c), [&](std::int64_t i, auto m) TFM_INLINE {
        const Vec<T> v = load(x + i, m), exponential = exp(v - max);
        e += only<T>(exponential, m);
        s += v;
        if constexpr (keep()) store(kept + c + i, exponential, m);
      });
    });
    exps += sum_of<T>(e);
    logits += sum_of<T>(s);
  }
  const std::int64_t label = label_column(a, r);
  a.sums[r] = static_cast<Accum<T>>(exps);
  a.sums[a.rows + r] = label < 0 ? Accum<T>{0} : Accum<T>{row[label]};
  a.sums[2 * a.rows + r] = static_cast<Accum<T>>(logits);
  if (!a.correct) return;
  const std::int64_t before = std::clamp<std::int64_t>(a.labels[r] - a.vocab_begin, 0, a.cols);
  a.sums[2 * a.rows + r] = static_cast<Accum<T>>(std::count(row, row + before, max));
}

template <class T>
void gradient_of_row(const CrossEntropyArgs<T>& a, std::int64_t r, const Accum<T>* kept = nullptr) {
  using W = Accum<T>;
  T* x = a.logits + r * a.stride;
  if (a.labels[r] < 0) {
    std::fill_n(x, std::max(a.cols, a.padded_cols), T{0});
    return;
  }
  const W factor = a.factor(a.labels[r]),
          uniform =
              a.smoothing == W{0} ? W{0} : factor * a.smoothing / static_cast<W>(a.vocab_size);
  const W max = a.max[r], scale = factor / a.sums[r];
  const std::int64_t label = label_column(a, r);
  W hit = label < 0 ? W{0}
                    : (exp(splat(W{x[label]} - max)) * scale - uniform)[0] -
                          factor * (W{1} - a.smoothing);
  const bool capped = a.softcap > W{0};
  const W inverse = capped ? 1 / a.softcap : W{0};
  if (capped && label >= 0) hit *= 1 - W{x[label]} * inverse * (W{x[label]} * inverse);
  with_flag(kept, [&](auto is_kept) {
    with_flag(capped, [&](auto is_capped) {
      each<T>(a.cols, [&](std::int64_t i, auto m) TFM_INLINE {
        Vec<T> e;
        if constexpr (is_kept())
          e = load(kept + i, m);
        else
          e = exp(load(x + i, m) - max);
        Vec<T> d = e * scale - uniform;
        if constexpr (is_capped()) {
          const Vec<T> t = load(x + i, m) * inverse;
          d *= W{1} - t * t;
        }
        store(x + i, d, m);
      });
    });
  });
  if (a.padded_cols > a.cols) std::fill(x + a.cols, x + a.padded_cols, T{0});
  if (label >= 0) x[label] = T(hit);
}

}  // namespace

template <class T>
void cross_entropy_statistics(cpu::Stream& stream, const CrossEntropyArgs<T>& a) {
  parallel(stream, a.rows, a.rows * a.cols, [&](std::int64_t r) { statistics_of_row(a, r); });
}

template <class T>
void cross_entropy_statistics_and_gradient(cpu::Stream& stream, const CrossEntropyArgs<T>& a) {
  parallel(stream, a.rows, a.rows * a.padded_cols, [&](std::int64_t r) {
    auto* const exponentials = scratch<Accum<T>, struct Exponentials>(a.cols);
    statistics_of_row(a, r, exponentials);
    gradient_of_row(a, r, exponentials);
  });
}

template <class T>
void cross_entropy_combine(cpu::Stream&, const CombineArgs<T>& a) {
  for (std::int64_t r = 0; r < a.rows; ++r)
    combine_row(a, r, [](Accum<T> x) { return std::exp(x); });
}

template <class T>
void cross_entropy_loss(cpu::Stream&, const CrossEntropyArgs<T>& a) {
  for (std::int64_t r = 0; r < a.rows; ++r) {
    a.loss[r] = row_loss(a, r, [](double x) { return std::log(x); });
    *a.total += a.loss[r];
    if (a.correct) *a.correct += is_correct(a, r);
  }
}

template <class T>
void cross_entropy_gradient(cpu::Stream& stream, const CrossEntropyArgs<T>& a) {
  parallel(stream, a.rows, a.rows * a.padded_cols, [&](std::int64_t r) { gradient_of_row(a, r); });
}

#define TFM_INSTANTIATE(T)                                                                       \
  template void cross_entropy_statistics(cpu::Stream&, const CrossEntropyArgs<T>&);              \
  template void cross_entropy_statistics_and_gradient(cpu::Stream&, const CrossEntropyArgs<T>&); \
  template void cross_entropy_gradient(cpu::Stream&, const CrossEntropyArgs<T>&);                \
  template void cross_entropy_combine(cpu::Stream&, const CombineArgs<T>&);                      \
  template void cross_entropy_loss(cpu::Stream&, const CrossEntropyArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
