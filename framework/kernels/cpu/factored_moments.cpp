#include "kernels/factored_moments.h"

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_half.h"
#include "kernels/factored_moments.inl"

namespace tfm::kernels {
namespace {

// The rows of a range: f(row, first column, count).
template <class T>
struct Rows {
  explicit Rows(const MatrixElements<T>& range)
      : a(range), first(a.first / a.width), count(ceil_div(a.first + a.n, a.width) - first) {}

  template <class F>
  void at(std::int64_t r, F&& f) const {
    const std::int64_t row = first + r, begin = std::max(a.first, row * a.width),
                       end = std::min(a.first + a.n, (row + 1) * a.width);
    f(row, begin - row * a.width, end - begin);
  }

  const MatrixElements<T>& a;
  std::int64_t first, count;
};

}  // namespace

// A thread adds the squares of its rows to columns of its own; sums of integers do not depend on
// how they are divided.
template <class T>
void add_row_column_squares(cpu::Stream& stream, const RowColumnSquaresArgs<T>& args) {
  if (args.outcome->applied == 0) return;
  const WholeSquares<T> square(*args.numbers, *args.outcome);
  for (const MatrixElements<T>& a : args.ranges) {
    const Rows rows(a);
    const std::int64_t parts = std::min<std::int64_t>(usable_threads(stream), rows.count);
    std::int64_t* const columns = scratch<std::int64_t, struct ColumnSums>(parts * a.width);
    parallel(stream, parts, a.n, [&](std::int64_t part) {
      std::int64_t* const own = columns + part * a.width;
      std::fill_n(own, a.width, 0);
      for (std::int64_t r = rows.count * part / parts; r < rows.count * (part + 1) / parts; ++r)
        rows.at(r, [&](std::int64_t row, std::int64_t column, std::int64_t n) {
          const T* x = a.grad + row * a.width + column - a.first;
          std::int64_t sum = 0;
          for (std::int64_t i = 0; i < n; ++i) {
            const std::int64_t whole = square(x[i]);
            sum += whole;
            own[column + i] += whole;
          }
          a.row_sums[row] += sum;
        });
    });
    for (std::int64_t part = 0; part < parts; ++part)
      for (std::int64_t c = 0; c < a.width; ++c) a.column_sums[c] += columns[part * a.width + c];
  }
}

template <class T>
void update_means(cpu::Stream&, const UpdateMeansArgs<T>& args) {
  if (args.outcome->applied == 0) return;
  const Means<T> update(*args.numbers, *args.outcome);
  for (const MatrixMeans<T>& a : args.matrices) {
    const double of_rows = update.scale(a.cols), of_columns = update.scale(a.rows);
    T* const changes =
        scratch<T, struct Changes>(a.rows + a.cols);  // rounded, also where there is FMA
    for (std::int64_t i = 0; i < a.rows + a.cols; ++i)
      changes[i] = update.change(a.means[i], a.sums[i], i < a.rows ? of_rows : of_columns);
    for (std::int64_t i = 0; i < a.rows + a.cols; ++i) a.means[i] += changes[i];
    double sum = 0;
    for (std::int64_t i = 0; i < a.rows; ++i) sum += a.means[i];
    *a.mean = std::max(args.least, sum / static_cast<double>(a.rows));
  }
}

template <class T>
void divide_by_means(cpu::Stream& stream, const DivideByMeansArgs<T>& args) {
  if (args.outcome->applied == 0) return;
  const MeansRoot<T> divide(args.least, *args.outcome);
  for (const MatrixElements<T>& a : args.ranges) {
    const Rows rows(a);
    parallel(stream, rows.count, a.n, [&](std::int64_t r) {
      rows.at(r, [&](std::int64_t row, std::int64_t column, std::int64_t n) {
        T* x = a.grad + row * a.width + column - a.first;
        const T share = a.row_means[row] / static_cast<T>(*a.mean);
        const T* means = a.column_means + column;
        each<T>(n, [&](std::int64_t i, auto mask) TFM_INLINE {
          store(
              x + i,
              divide(load_ahead(x + i, mask), share, load(means + i, mask), splat(divide.smallest)),
              mask);
        });
      });
    });
  }
}

template <class T, class P>
void divide_by_root(cpu::Stream& stream, const DivideByRootArgs<T, P>& a) {
  if (a.outcome->applied == 0) return;
  const ElementRoot<T> divide(a.least, *a.numbers, *a.outcome);
  for (const PartElements<T, P>& r : a.ranges)
    parallel_ranges(stream, r.n, [&](std::int64_t begin, std::int64_t end) {
      each<T>(end - begin, [&](std::int64_t i, auto mask) TFM_INLINE {
        const std::int64_t at = begin + i;
        Vec<T> grad = load_ahead(r.grad + at, mask), m = load_ahead(r.m + at, mask);
        divide(grad, m, splat(divide.smallest));
        store(r.m + at, m, mask);
        store(r.grad + at, grad, mask);
      });
    });
}

#define TFM_INSTANTIATE(T, P) \
  template void divide_by_root(cpu::Stream&, const DivideByRootArgs<T, P>&);
TFM_UPDATES(TFM_INSTANTIATE)
#undef TFM_INSTANTIATE
#define TFM_INSTANTIATE(T)                                                            \
  template void add_row_column_squares(cpu::Stream&, const RowColumnSquaresArgs<T>&); \
  template void update_means(cpu::Stream&, const UpdateMeansArgs<T>&);                \
  template void divide_by_means(cpu::Stream&, const DivideByMeansArgs<T>&);
TFM_INSTANTIATE(float)
TFM_INSTANTIATE(double)

}  // namespace tfm::kernels
