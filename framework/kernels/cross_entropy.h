#pragma once
// Softmax cross-entropy over a vocabulary that may be split over ranks, in passes:
//   max and sums of this rank's columns; where there are several ranks, all of theirs are gathered
//   and combined in rank order; loss; gradient in place of the logits.
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
                             // elsewhere), sum of logits
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

template <class T>
void cross_entropy_max(cpu::Stream&, const CrossEntropyArgs<T>&);  // writes max (-inf if cols == 0)
template <class T>
void cross_entropy_sums(cpu::Stream&, const CrossEntropyArgs<T>&);  // reads max, writes sums
template <class T>
void cross_entropy_max(cuda::Stream&, const CrossEntropyArgs<T>&);
template <class T>
void cross_entropy_sums(cuda::Stream&, const CrossEntropyArgs<T>&);
// For accuracy, without smoothing: overwrites the third sum with the number of columns before the
// label's that reach max.
template <class T>
void cross_entropy_ties(cpu::Stream&, const CrossEntropyArgs<T>&);

// (ranks, 4, rows) from max and sums of each rank; with `ties` the third sum is that of
// cross_entropy_ties.
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

template <class T>
void cross_entropy_loss(cpu::Stream&,
                        const CrossEntropyArgs<T>&);  // reads max and sums, writes loss
template <class T>
void cross_entropy_total(
    cpu::Stream&,
    const CrossEntropyArgs<T>&);  // reads loss, and for `correct` what cross_entropy_ties wrote
template <class T>
void cross_entropy_gradient(cpu::Stream&, const CrossEntropyArgs<T>&);  // overwrites logits
template <class T>
void cross_entropy_ties(cuda::Stream&, const CrossEntropyArgs<T>&);
template <class T>
void cross_entropy_loss(cuda::Stream&, const CrossEntropyArgs<T>&);
template <class T>
void cross_entropy_total(cuda::Stream&, const CrossEntropyArgs<T>&);
template <class T>
void cross_entropy_gradient(cuda::Stream&, const CrossEntropyArgs<T>&);

}  // namespace tfm::kernels
