// Softmax cross-entropy: a block takes a row of the logits in each pass. Sums run in Accum<T>
// within a pack and in float64 beyond. Every other pass takes the rows from the last on, as those
// read last may still be in the L2 cache.
#include <algorithm>
#include <cmath>

#include "kernels/cross_entropy.h"
#include "kernels/cuda/packs.h"

namespace tfm::kernels {
namespace {

constexpr int kWarps = kThreads / kWarp;

__device__ inline float exponential(float x) { return cuda::exp2_approximate(x * 1.44269504f); }
__device__ inline double exponential(double x) { return ::exp(x); }

// f(column, part) for the packs of this thread in the block's row, of which `cols` columns count.
// Whole packs start on vectors.
template <class T, class F>
__device__ void over_row(const T* row, std::int64_t cols, F&& f) {
  for (std::int64_t c = static_cast<int>(threadIdx.x) * kPack - misalignment(row); c < cols;
       c += kThreads * kPack)
    f(c, part_of(c, cols));
}

// Column of the row's label in this part of the vocabulary, or -1.
template <class T>
__device__ std::int64_t label_column(const CrossEntropyArgs<T>& a, std::int64_t r) {
  const std::int64_t c = a.labels[r] - a.vocab_begin;
  return a.labels[r] >= 0 && c >= 0 && c < a.cols ? c : -1;
}

template <class T>
__global__ void __launch_bounds__(kThreads) max_kernel(CrossEntropyArgs<T> a) {
  using W = Accum<T>;
  const T* row = a.logits + blockIdx.x * a.stride;
  W max[1] = {-static_cast<W>(INFINITY)};
  over_row(row, a.cols, [&](std::int64_t c, Part part) {
    const auto x = load_pack(row + c, part);
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i)
      if (part.has(i)) max[0] = Maximum{}(x[i], max[0]);
  });
  over_block(max, cuda::shared_memory<W>(), Maximum{});
  if (threadIdx.x == 0) a.max[blockIdx.x] = max[0];
}

template <class T>
__global__ void __launch_bounds__(kThreads) sums_kernel(CrossEntropyArgs<T> a) {
  using W = Accum<T>;
  const std::int64_t r = a.rows - 1 - blockIdx.x;
  const T* row = a.logits + r * a.stride;
  const W max = a.max[r];
  double sum[2] = {0, 0};  // of exp(logit - max), of the logits
  over_row(row, a.cols, [&](std::int64_t c, Part part) {
    const auto x = load_pack(row + c, part);
    W exps = 0, logits = 0;
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) {
      if (part.has(i)) exps += exponential(x[i] - max);
      logits += x[i];
    }
    sum[0] += exps;
    sum[1] += logits;
  });
  over_block(sum, cuda::shared_memory<double>(), Sum{});
  if (threadIdx.x > 0) return;
  const std::int64_t label = label_column(a, r);
  a.sums[r] = static_cast<W>(sum[0]);
  a.sums[a.rows + r] = label < 0 ? W{0} : cuda::widen<T>(row[label]);
  a.sums[2 * a.rows + r] = static_cast<W>(sum[1]);
}

template <class T>
__global__ void __launch_bounds__(kThreads) ties_kernel(CrossEntropyArgs<T> a) {
  const std::int64_t r = blockIdx.x, label = a.labels[r] - a.vocab_begin,
                     before = label < 0        ? 0
                              : label < a.cols ? label
                                               : a.cols;
  const T* row = a.logits + r * a.stride;
  const Accum<T> max = a.max[r];
  int count[1] = {0};
  over_row(row, before, [&](std::int64_t c, Part part) {
    const auto x = load_pack(row + c, part);
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) count[0] += part.has(i) && x[i] == max;
  });
  over_block(count, cuda::shared_memory<int>(), Sum{});
  if (threadIdx.x == 0) a.sums[2 * a.rows + r] = static_cast<Accum<T>>(count[0]);
}

template <class T>
__global__ void __launch_bounds__(kThreads) loss_kernel(CrossEntropyArgs<T> a) {
  const std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (r >= a.rows) return;
  const double smoothing = a.smoothing, sum = a.sums[r], target = a.sums[a.rows + r],
               all = a.sums[2 * a.rows + r];
  a.loss[r] = a.labels[r] < 0
                  ? 0
                  : ::log(sum) + static_cast<double>(a.max[r]) - (1 - smoothing) * target -
                        (smoothing == 0 ? 0 : smoothing / static_cast<double>(a.vocab_size) * all);
}

template <class T>
__global__ void __launch_bounds__(kThreads) combine_kernel(CombineArgs<T> a) {
  const std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (r < a.rows) combine_row(a, r, [](Accum<T> x) { return exponential(x); });
}

// One block: every 256th row a thread.
template <class T>
__global__ void __launch_bounds__(kThreads) total_kernel(CrossEntropyArgs<T> a) {
  double sum[2] = {0, 0};  // losses, correct rows
  for (std::int64_t r = threadIdx.x; r < a.rows; r += kThreads) {
    sum[0] += a.loss[r];
    if (a.correct)
      sum[1] += a.labels[r] >= 0 && a.sums[a.rows + r] == a.max[r] && a.sums[2 * a.rows + r] == 0;
  }
  over_block(sum, cuda::shared_memory<double>(), Sum{});
  if (threadIdx.x > 0) return;
  *a.total += sum[0];
  if (a.correct) *a.correct += sum[1];
}

template <class T>
__global__ void __launch_bounds__(kThreads) gradient_kernel(CrossEntropyArgs<T> a) {
  using W = Accum<T>;
  const std::int64_t r = blockIdx.x, label = label_column(a, r),
                     cols = a.padded_cols > a.cols ? a.padded_cols : a.cols;
  T* row = a.logits + r * a.stride;
  const bool ignored = a.labels[r] < 0;
  const W factor = a.factor(), uniform = a.smoothing == W{0}
                                             ? W{0}
                                             : factor * a.smoothing / static_cast<W>(a.vocab_size);
  const W max = ignored ? W{0} : a.max[r], scale = ignored ? W{0} : factor / a.sums[r];
  const W hit = factor * (W{1} - a.smoothing);
  over_row(row, cols, [&](std::int64_t c, Part part) {
    const auto x = load_pack(row + c, part);
    W d[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) {
      d[i] = exponential(x[i] - max) * scale - uniform;
      if (c + i == label) d[i] -= hit;
      if (ignored || c + i >= a.cols) d[i] = 0;
    }
    store_pack(row + c, part, d);
  });
}

// A block for each row that there is.
template <class T>
void launch_rows(cuda::Stream& stream, void (*kernel)(CrossEntropyArgs<T>),
                 std::size_t shared_bytes, const CrossEntropyArgs<T>& a) {
  if (a.rows > 0)
    cuda::launch(stream, kernel, static_cast<unsigned>(a.rows), kThreads, shared_bytes, a);
}

}  // namespace

template <class T>
void cross_entropy_max(cuda::Stream& stream, const CrossEntropyArgs<T>& a) {
  launch_rows(stream, max_kernel<T>, kWarps * sizeof(Accum<T>), a);
}
template <class T>
void cross_entropy_sums(cuda::Stream& stream, const CrossEntropyArgs<T>& a) {
  launch_rows(stream, sums_kernel<T>, 2 * kWarps * sizeof(double), a);
}
template <class T>
void cross_entropy_ties(cuda::Stream& stream, const CrossEntropyArgs<T>& a) {
  launch_rows(stream, ties_kernel<T>, kWarps * sizeof(int), a);
}
template <class T>
void cross_entropy_combine(cuda::Stream& stream, const CombineArgs<T>& a) {
  if (a.rows > 0)
    cuda::launch(stream, combine_kernel<T>, static_cast<unsigned>(ceil_div(a.rows, kThreads)),
                 kThreads, 0, a);
}
template <class T>
void cross_entropy_gradient(cuda::Stream& stream, const CrossEntropyArgs<T>& a) {
  launch_rows(stream, gradient_kernel<T>, 0, a);
}
template <class T>
void cross_entropy_loss(cuda::Stream& stream, const CrossEntropyArgs<T>& a) {
  if (a.rows > 0)
    cuda::launch(stream, loss_kernel<T>, static_cast<unsigned>(ceil_div(a.rows, kThreads)),
                 kThreads, 0, a);
}
template <class T>
void cross_entropy_total(cuda::Stream& stream, const CrossEntropyArgs<T>& a) {
  cuda::launch(stream, total_kernel<T>, 1, kThreads, 2 * kWarps * sizeof(double), a);
}

#define TFM_INSTANTIATE(T)                                                      \
  template void cross_entropy_max(cuda::Stream&, const CrossEntropyArgs<T>&);   \
  template void cross_entropy_sums(cuda::Stream&, const CrossEntropyArgs<T>&);  \
  template void cross_entropy_ties(cuda::Stream&, const CrossEntropyArgs<T>&);  \
  template void cross_entropy_combine(cuda::Stream&, const CombineArgs<T>&);    \
  template void cross_entropy_loss(cuda::Stream&, const CrossEntropyArgs<T>&);  \
  template void cross_entropy_total(cuda::Stream&, const CrossEntropyArgs<T>&); \
  template void cross_entropy_gradient(cuda::Stream&, const CrossEntropyArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
