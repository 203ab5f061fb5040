#pragma once
// Softmax cross-entropy over a vocabulary that may be split over ranks, in three passes with a
// reduction between them:
//   row_max -> max over ranks; row_sums -> sum over ranks; gradient in place of the logits.
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
// For accuracy, without smoothing, max being that of all ranks: overwrites the third sum with the
// number of columns before the label's that reach it.
template <class T>
void cross_entropy_ties(cpu::Stream&, const CrossEntropyArgs<T>&);
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
