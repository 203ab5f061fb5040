#pragma once
// Adafactor's second moments (Shazeer & Stern 2018): for a matrix the product of means over its
// rows and columns, for a vector one per element. If outcome->applied is 0, the kernels change
// nothing.
#include "kernels/part_update.h"

namespace tfm::kernels {

// Elements [first, first + n) of a rank's share of a matrix, which has `width` columns.
template <class T>
struct MatrixElements {
  std::int64_t n = 0, first = 0, width = 0;
  T* grad = nullptr;  // of element `first`; replaced by divide_by_means()
  // Of the share's first row and first column.
  std::int64_t *row_sums = nullptr, *column_sums = nullptr;
  const T *row_means = nullptr, *column_means = nullptr;
  const double* mean = nullptr;  // mean of the whole matrix's row means
};
// row_sums and column_sums += sums of the squares of the clipped gradient. Squares are scaled by a
// power of two that depends on the gradient's norm and truncated to integers, so that sums over
// ranks do not depend on the order.
template <class T>
struct RowColumnSquaresArgs {
  std::span<const MatrixElements<T>> ranges;
  const StepNumbers* numbers = nullptr;
  const StepOutcome* outcome = nullptr;
};

// A whole matrix: sums and means of its rows, then of its columns.
template <class T>
struct MatrixMeans {
  int part = 0;
  std::int64_t rows = 0, cols = 0;
  std::int64_t* sums = nullptr;
  T* means = nullptr;
  double* mean = nullptr;  // mean of the rows' means, at least UpdateMeansArgs::least
};
// means += share * (sums / number of terms - means), where share = numbers->update.correction1.
template <class T>
struct UpdateMeansArgs {
  std::span<const MatrixMeans<T>> matrices;
  double least = 0;
  const StepNumbers* numbers = nullptr;
  const StepOutcome* outcome = nullptr;
};

// grad = g / sqrt(max(row_means[r] * column_means[c] / mean, least^2)), where g is the clipped
// gradient.
template <class T>
struct DivideByMeansArgs {
  std::span<const MatrixElements<T>> ranges;
  double least = 0;
  const StepOutcome* outcome = nullptr;
};
// m += share * (g^2 - m); grad = g / sqrt(max(m, least^2)).
template <class T, class P>
struct DivideByRootArgs {
  std::span<const PartElements<T, P>> ranges;
  double least = 0;
  const StepNumbers* numbers = nullptr;
  const StepOutcome* outcome = nullptr;
};

template <class T>
void add_row_column_squares(cpu::Stream&, const RowColumnSquaresArgs<T>&);
template <class T>
void update_means(cpu::Stream&, const UpdateMeansArgs<T>&);
template <class T>
void divide_by_means(cpu::Stream&, const DivideByMeansArgs<T>&);
template <class T, class P>
void divide_by_root(cpu::Stream&, const DivideByRootArgs<T, P>&);
template <class T>
void add_row_column_squares(cuda::Stream&, const RowColumnSquaresArgs<T>&);
template <class T>
void update_means(cuda::Stream&, const UpdateMeansArgs<T>&);
template <class T>
void divide_by_means(cuda::Stream&, const DivideByMeansArgs<T>&);
template <class T, class P>
void divide_by_root(cuda::Stream&, const DivideByRootArgs<T, P>&);

}  // namespace tfm::kernels
