// Adafactor's second moments.
#include "kernels/cuda/column_fold.h"
#include "kernels/cuda/reductions.h"
#include "kernels/cuda/updates.h"
#include "kernels/factored_moments.h"
#include "kernels/factored_moments.inl"
#include "kernels/scratch.h"

namespace tfm::kernels {
namespace {

constexpr int kRowsOfBlock = kThreads / kWarp;
static_assert(kColumnStrip == kThreads);

// Of a range of a matrix: the row of its first element, and how many rows it touches.
struct Rows {
  template <class T>
  __host__ __device__ explicit Rows(const MatrixElements<T>& a)
      : first(a.first / a.width), count((a.first + a.n - 1) / a.width - first + 1) {}
  std::int64_t first, count;
};

// A warp for each row.
template <class T>
__global__ void __launch_bounds__(kThreads)
    row_squares_kernel(MatrixElements<T> a, const StepOutcome* outcome,
                       const WholeSquares<T>* squares) {
  if (outcome->applied == 0) return;
  const WholeSquares<T> square = *squares;
  const std::int64_t row = Rows(a).first + std::int64_t{blockIdx.x} * kRowsOfBlock +
                           threadIdx.x / kWarp,
                     begin = row * a.width - a.first, end = begin + a.width;
  std::int64_t sum = 0;
  for (std::int64_t i = (begin < 0 ? 0 : begin) + threadIdx.x % kWarp; i < (end < a.n ? end : a.n);
       i += kWarp)
    sum += square(a.grad[i]);
  sum = over_warp(sum, Sum{});
  if (threadIdx.x % kWarp == 0 && begin < a.n) a.row_sums[row] += sum;
}

// A thread for each column of a block of rows.
template <class T>
__global__ void __launch_bounds__(kThreads)
    column_squares_kernel(MatrixElements<T> a, std::int64_t rows_a_block,
                          const StepOutcome* outcome, const WholeSquares<T>* squares,
                          std::int64_t* partial) {
  const std::int64_t column = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= a.width) return;
  std::int64_t sum = 0;
  if (outcome->applied != 0) {
    const WholeSquares<T> square = *squares;
    const Rows rows(a);
    const std::int64_t begin = std::int64_t{blockIdx.y} * rows_a_block, rest = rows.count - begin;
    for (std::int64_t r = 0; r < (rows_a_block < rest ? rows_a_block : rest); ++r) {
      const std::int64_t i = (rows.first + begin + r) * a.width + column - a.first;
      if (i >= 0 && i < a.n) sum += square(a.grad[i]);
    }
  }
  partial[blockIdx.y * a.width + column] = sum;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    means_kernel(const __grid_constant__ Ranges<MatrixMeans<T>> matrices,
                 const StepOutcome* outcome, const Means<T>* update) {
  if (outcome->applied == 0) return;
  const int which = matrices.of_block(blockIdx.x);
  const MatrixMeans<T>& a = matrices.at[which];
  const std::int64_t i =
      std::int64_t{blockIdx.x - matrices.first_block[which]} * kThreads + threadIdx.x;
  if (i < a.rows + a.cols)
    a.means[i] +=
        update->change(a.means[i], a.sums[i], update->scale(i < a.rows ? a.cols : a.rows));
}

// A block for each matrix.
template <class T>
__global__ void __launch_bounds__(kThreads)
    row_mean_kernel(const __grid_constant__ Ranges<MatrixMeans<T>> matrices,
                    const StepOutcome* outcome, double least) {
  if (outcome->applied == 0) return;
  const MatrixMeans<T>& a = matrices.at[blockIdx.x];
  double sum[1] = {0};
  for (std::int64_t i = threadIdx.x; i < a.rows; i += kThreads) sum[0] += a.means[i];
  over_block(sum, cuda::shared_memory<double>(), Sum{});
  if (threadIdx.x == 0) *a.mean = larger(least, sum[0] / static_cast<double>(a.rows));
}

struct DivideByMeans {
  template <class T>
  __device__ void operator()(const MatrixElements<T>& a, std::int64_t at, Part part,
                             const MeansRoot<T>& root) const {
    const auto x = load_pack(a.grad + at, part);
    const T mean = static_cast<T>(*a.mean);
    std::int64_t row = (a.first + at) / a.width, column = (a.first + at) % a.width;
    T share = a.row_means[row] / mean, grad[kPack] = {};
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) {
      if (!part.has(i)) break;
      if (column == a.width) column = 0, share = a.row_means[++row] / mean;
      grad[i] = root(x[i], share, a.column_means[column++], root.smallest);
    }
    store_pack(a.grad + at, part, grad);
  }
};

struct DivideByRoot {
  template <class T, class P>
  __device__ void operator()(const PartElements<T, P>& r, std::int64_t at, Part part,
                             const ElementRoot<T>& root) const {
    const auto g = load_pack(r.grad + at, part), square = load_pack(r.m + at, part);
    T grad[kPack], m[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) {
      grad[i] = g[i], m[i] = square[i];
      root(grad[i], m[i], root.smallest);
    }
    store_pack(r.m + at, part, m);
    store_pack(r.grad + at, part, grad);
  }
};

}  // namespace

// Ranges of one matrix may share rows, and do share columns: one after the other.
template <class T>
void add_row_column_squares(cuda::Stream& stream, const RowColumnSquaresArgs<T>& args) {
  const Prepared<WholeSquares<T>> square(stream, args.numbers, args.outcome);
  for (const MatrixElements<T>& a : args.ranges) {
    const std::int64_t rows = Rows(a).count;
    cuda::launch(stream, row_squares_kernel<T>, static_cast<unsigned>(ceil_div(rows, kRowsOfBlock)),
                 kThreads, 0, a, args.outcome, square);
    const auto [blocks, rows_a_block] = column_sum_partition(rows, a.width);
    const cuda::Scratch<std::int64_t> partial(stream, blocks * a.width);
    cuda::launch(
        stream, column_squares_kernel<T>,
        dim3(static_cast<unsigned>(ceil_div(a.width, kThreads)), static_cast<unsigned>(blocks)),
        kThreads, 0, a, rows_a_block, args.outcome, square, partial);
    column_fold<std::int64_t>(stream, {{{partial, a.column_sums, true}}, blocks, a.width, a.width});
  }
}

template <class T>
void update_means(cuda::Stream& stream, const UpdateMeansArgs<T>& a) {
  const Prepared<Means<T>> update(stream, a.numbers, a.outcome);
  each_launch(
      a.matrices,
      [](const MatrixMeans<T>& m) { return ceil_div(m.rows + m.cols, std::int64_t{kThreads}); },
      [&](const Ranges<MatrixMeans<T>>& some) {
        cuda::launch(stream, means_kernel<T>, some.blocks(), kThreads, 0, some, a.outcome, update);
        cuda::launch(stream, row_mean_kernel<T>, static_cast<unsigned>(some.count), kThreads,
                     kThreads / kWarp * sizeof(double), some, a.outcome, a.least);
      });
}

template <class T>
void divide_by_means(cuda::Stream& stream, const DivideByMeansArgs<T>& a) {
  const Prepared<MeansRoot<T>> root(stream, a.least, a.outcome);
  over_ranges<MatrixElements<T>, MeansRoot<T>>(stream, a.ranges, a.outcome, root, DivideByMeans{});
}

template <class T, class P>
void divide_by_root(cuda::Stream& stream, const DivideByRootArgs<T, P>& a) {
  const Prepared<ElementRoot<T>> root(stream, a.least, a.numbers, a.outcome);
  over_ranges<PartElements<T, P>, ElementRoot<T>>(stream, a.ranges, a.outcome, root,
                                                  DivideByRoot{});
}

#define TFM_INSTANTIATE(T, P) \
  template void divide_by_root(cuda::Stream&, const DivideByRootArgs<T, P>&);
TFM_UPDATES(TFM_INSTANTIATE)
#undef TFM_INSTANTIATE
#define TFM_INSTANTIATE(T)                                                             \
  template void add_row_column_squares(cuda::Stream&, const RowColumnSquaresArgs<T>&); \
  template void update_means(cuda::Stream&, const UpdateMeansArgs<T>&);                \
  template void divide_by_means(cuda::Stream&, const DivideByMeansArgs<T>&);
TFM_INSTANTIATE(float)
TFM_INSTANTIATE(double)

}  // namespace tfm::kernels
