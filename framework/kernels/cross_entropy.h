#pragma once
// Softmax cross-entropy over a vocabulary that may be split over ranks:
//   statistics, maximum and sums of this rank's columns; where there are several ranks, all of
//   theirs are gathered and combined in rank order; loss; gradient in place of the logits.
// Loss of a row: log(sum_exp) + max - (1-eps) * logit[label] - eps/V * sum(logits). Rows labelled <
// 0 are ignored.
#include <cstdint>

#include "core/dtype.h"
#include "device/stream.h"

namespace tfm::kernels {

template <class T>
struct CrossEntropyArgs {
  std::int64_t rows = 0, cols = 0,
               stride = 0;       // cols: real columns of this rank; row r starts at r * stride
  std::int64_t padded_cols = 0;  // columns [cols, padded_cols) get zero gradient
  std::int64_t vocab_begin = 0,
               vocab_size = 0;  // first global column of this rank, global number of columns
  T* logits = nullptr;
  const std::int32_t* labels = nullptr;  // (rows), global ids; < 0: ignored
  Accum<T>* max = nullptr;               // (rows)
  Accum<T>* sums = nullptr;  // (3, rows): sum exp(logit - max), logit of the label (0 if
                             // elsewhere), sum of logits; where `correct` is wanted, which excludes
                             // smoothing, the third is the number of columns before the label's
                             // that reach max
  Accum<T> smoothing = 0;
  const double* gradient_scale =
      nullptr;             // (1): the gradient of the summed loss is multiplied by this; null: 1
  double* loss = nullptr;  // (rows): loss of each row, 0 where ignored
  double* total =
      nullptr;  // (1): the losses of these rows are added to it, in an order that no run changes
  double* correct =
      nullptr;  // (1) or null: so is 1 for each row whose label is the first of its largest logits
  constexpr Accum<T> factor() const {
    return gradient_scale ? static_cast<Accum<T>>(*gradient_scale) : Accum<T>{1};
  }  // where kernels run
};

// Write max (-inf if cols == 0) and sums.
template <class T>
void cross_entropy_statistics(cpu::Stream&, const CrossEntropyArgs<T>&);
template <class T>
void cross_entropy_statistics(cuda::Stream&, const CrossEntropyArgs<T>&);
// Overwrite the logits; read max and sums.
template <class T>
void cross_entropy_gradient(cpu::Stream&, const CrossEntropyArgs<T>&);
template <class T>
void cross_entropy_gradient(cuda::Stream&, const CrossEntropyArgs<T>&);
// Both, where this rank has all columns; of ignored rows max and sums may be left as they are.
template <class T>
void cross_entropy_statistics_and_gradient(cpu::Stream&, const CrossEntropyArgs<T>&);
template <class T>
void cross_entropy_statistics_and_gradient(cuda::Stream&, const CrossEntropyArgs<T>&);
// Whether a GPU then reads each logit once: a block's shared memory, 163 KiB on an A100, has room
// for the row. `bytes`: of an element.
constexpr bool holds_row(std::int64_t cols, std::int64_t bytes) {
  return cols * bytes <= (160 << 10);
}

// (ranks, 4, rows) from max and sums of each rank; `ties`: the third sum is of the columns that
// reach max.
template <class T>
struct CombineArgs {
  std::int64_t ranks = 0, rows = 0;
  std::int64_t stride = 0;  // elements of a rank's block
  const Accum<T>* parts = nullptr;
  Accum<T>* max = nullptr;   // (rows), of all ranks
  Accum<T>* sums = nullptr;  // (3, rows)
  bool ties = false;
};
// Row r: exponentials move from a rank's maximum to that of all.
template <class T, class Exp>
constexpr void combine_row(const CombineArgs<T>& a, std::int64_t r, Exp exp) {
  using W = Accum<T>;
  const auto of = [&](std::int64_t rank, int k) {
    return a.parts[rank * a.stride + k * a.rows + r];
  };
  W max = of(0, 0);
  for (std::int64_t k = 1; k < a.ranks; ++k)
    if (const W m = of(k, 0); m > max || m != m) max = m;  // a NaN stays
  W exps = 0, label = 0, third = 0;
  for (std::int64_t k = 0; k < a.ranks; ++k) {
    const W m = of(k, 0);
    if (of(k, 1) > W{0} || of(k, 1) != of(k, 1)) exps += of(k, 1) * exp(m - max);
    label += of(k, 2);
    if (!a.ties || m == max) third += of(k, 3);
  }
  a.max[r] = max, a.sums[r] = exps, a.sums[a.rows + r] = label, a.sums[2 * a.rows + r] = third;
}
template <class T>
void cross_entropy_combine(cpu::Stream&, const CombineArgs<T>&);
template <class T>
void cross_entropy_combine(cuda::Stream&, const CombineArgs<T>&);

// Of row r; 0 where ignored.
template <class T, class Log>
constexpr double row_loss(const CrossEntropyArgs<T>& a, std::int64_t r, Log log) {
  if (a.labels[r] < 0) return 0;
  const double smoothing = a.smoothing, sum = a.sums[r], target = a.sums[a.rows + r],
               all = a.sums[2 * a.rows + r];
  return log(sum) + static_cast<double>(a.max[r]) - (1 - smoothing) * target -
         (smoothing == 0 ? 0 : smoothing / static_cast<double>(a.vocab_size) * all);
}
template <class T>
constexpr bool is_correct(const CrossEntropyArgs<T>& a, std::int64_t r) {
  return a.labels[r] >= 0 && a.sums[a.rows + r] == a.max[r] && a.sums[2 * a.rows + r] == 0;
}
// Read max and sums, write loss, total and correct.
template <class T>
void cross_entropy_loss(cpu::Stream&, const CrossEntropyArgs<T>&);
template <class T>
void cross_entropy_loss(cuda::Stream&, const CrossEntropyArgs<T>&);

}  // namespace tfm::kernels
