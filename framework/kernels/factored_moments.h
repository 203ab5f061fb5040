#pragma once
// Adafactor's second moments (Shazeer & Stern 2018): of a matrix the product of means over its rows
// and columns, of a vector one of each element. Where outcome->applied is 0, they change nothing.
#include "kernels/part_update.h"

namespace tfm::kernels {

// Elements [first, first + n) of a rank's share of a matrix, which has `width` columns.
template <class T>
struct MatrixElements {
  std::int64_t n = 0, first = 0, width = 0;
  T* grad = nullptr;  // of the first one, as below
  // Of the share's first row and column.
  std::int64_t *row_sums = nullptr, *column_sums = nullptr;
  const T *row_means = nullptr, *column_means = nullptr;
  const double* mean = nullptr;  // of the whole matrix' row_means
};
// Sums over ranks are whole numbers, so that they do not depend on their order: squares times a
// power of two that follows from the gradient's norm. row_sums and column_sums += those of the
// gradient.
template <class T>
struct RowColumnSquaresArgs {
  std::span<const MatrixElements<T>> ranges;
  const StepNumbers* numbers = nullptr;
  const StepOutcome* outcome = nullptr;
};

// Of a whole matrix: sums and means of its rows, then those of its columns.
template <class T>
struct MatrixMeans {
  int part = 0;
  std::int64_t rows = 0, cols = 0;
  std::int64_t* sums = nullptr;
  T* means = nullptr;
  double* mean = nullptr;  // of the rows' means, at least `least`
};
// means += share * (the sums' means - means), where share is numbers->update.correction1.
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
