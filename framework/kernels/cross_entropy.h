#pragma once
// Softmax cross-entropy over a vocabulary that may be sharded over ranks, in these steps:
//   statistics: maximum and sums of this rank's columns;
//   combine:    the statistics of several ranks, after they are gathered, in rank order;
//   loss;
//   gradient:   in place of the logits.
// Loss of a row: log(sum_exp) + max - (1-eps) * logit[label] - eps/V * sum(logits), times the
// weight of its label's class. Rows with a label < 0 are ignored.
#include <cstdint>

#include "core/dtype.h"
#include "device/stream.h"

namespace tfm::kernels {

template <class T>
struct CrossEntropyArgs {
  // cols: this rank's real columns. Row r starts at r * stride.
  std::int64_t rows = 0, cols = 0, stride = 0;
  std::int64_t padded_cols = 0;  // columns [cols, padded_cols) get zero gradient
  // This rank's first global column, and the global number of columns.
  std::int64_t vocab_begin = 0, vocab_size = 0;
  T* logits = nullptr;
  const std::int32_t* labels = nullptr;  // (rows), global ids; < 0: ignored
  Accum<T>* max = nullptr;               // (rows)
  // (3, rows): sum of exp(logit - max); logit of the label, 0 if another rank has it; with
  // smoothing, the sum of logits. If `correct` is given, which excludes smoothing, the third is the
  // number of columns before the label's whose logit equals max.
  Accum<T>* sums = nullptr;
  const double* class_weights = nullptr;  // (vocab_size); null: all 1
  Accum<T> smoothing = 0;
  Accum<T> softcap = 0;  // c: the logits are c tanh(x / c), the gradient is that of x; 0: no cap
  const double* gradient_scale =
      nullptr;              // (1): multiplies the gradient of the summed loss; null: 1
  double* loss = nullptr;   // (rows): loss of each row, 0 if ignored
  double* total = nullptr;  // (1): the losses are added to it in a fixed order
  // (1) or null: the number of rows whose label is the first column with the largest logit is
  // added.
  double* correct = nullptr;
  constexpr double weight_of(std::int32_t label) const {
    return class_weights && label >= 0 ? class_weights[label] : 1;
  }
  // Of the gradient of a row with this label. Callable only where kernels run.
  constexpr Accum<T> factor(std::int32_t label) const {
    return static_cast<Accum<T>>((gradient_scale ? *gradient_scale : 1) * weight_of(label));
  }
};

// Writes max (-inf if cols == 0) and sums.
template <class T>
void cross_entropy_statistics(cpu::Stream&, const CrossEntropyArgs<T>&);
template <class T>
void cross_entropy_statistics(cuda::Stream&, const CrossEntropyArgs<T>&);
// Reads max and sums, overwrites the logits with their gradient.
template <class T>
void cross_entropy_gradient(cpu::Stream&, const CrossEntropyArgs<T>&);
template <class T>
void cross_entropy_gradient(cuda::Stream&, const CrossEntropyArgs<T>&);
// Both, if this rank has all columns. May leave max and sums of ignored rows unwritten.
template <class T>
void cross_entropy_statistics_and_gradient(cpu::Stream&, const CrossEntropyArgs<T>&);
template <class T>
void cross_entropy_statistics_and_gradient(cuda::Stream&, const CrossEntropyArgs<T>&);
// Whether a GPU reads each logit only once in it, because a row fits in the shared memory of a
// block (163 KiB on an A100). `bytes` is the size of an element.
constexpr bool holds_row(std::int64_t cols, std::int64_t bytes) {
  return cols * bytes <= (160 << 10);
}

// Combines the max and sums of all ranks, `parts` (ranks, 4, rows). `ties`: the third sum counts
// columns whose logit equals max.
template <class T>
struct CombineArgs {
  std::int64_t ranks = 0, rows = 0;
  std::int64_t stride = 0;  // elements from one rank's part to the next
  const Accum<T>* parts = nullptr;
  Accum<T>* max = nullptr;   // (rows), of all ranks
  Accum<T>* sums = nullptr;  // (3, rows)
  bool ties = false;
};
// Combines row r. Exponentials are rescaled from each rank's maximum to the global one.
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

// Loss of row r; 0 if ignored.
template <class T, class Log>
constexpr double row_loss(const CrossEntropyArgs<T>& a, std::int64_t r, Log log) {
  if (a.labels[r] < 0) return 0;
  const double smoothing = a.smoothing, sum = a.sums[r], target = a.sums[a.rows + r],
               all = a.sums[2 * a.rows + r];
  const double loss = log(sum) + static_cast<double>(a.max[r]) - (1 - smoothing) * target -
                      (smoothing == 0 ? 0 : smoothing / static_cast<double>(a.vocab_size) * all);
  return loss * a.weight_of(a.labels[r]);
}
template <class T>
constexpr bool is_correct(const CrossEntropyArgs<T>& a, std::int64_t r) {
  return a.labels[r] >= 0 && a.sums[a.rows + r] == a.max[r] && a.sums[2 * a.rows + r] == 0;
}
// Reads max and sums, writes loss and adds to total and correct.
template <class T>
void cross_entropy_loss(cpu::Stream&, const CrossEntropyArgs<T>&);
template <class T>
void cross_entropy_loss(cuda::Stream&, const CrossEntropyArgs<T>&);

}  // namespace tfm::kernels
