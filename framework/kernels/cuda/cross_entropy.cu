// Softmax cross-entropy: a block takes a row of the logits. Maximum and sums are made in one pass:
// exponentials that were added up move to a larger maximum when one comes. Sums run in Accum<T>
// within a pack and in float64 beyond. Statistics take the rows from the last on, as those that the
// product wrote last, and those that the statistics read last, may still be in the L2 cache.
#include <algorithm>
#include <cmath>

#include "kernels/cross_entropy.h"
#include "kernels/cuda/packs.h"
#include "kernels/cuda/reductions.h"

namespace tfm::kernels {
namespace {

constexpr int kHeldThreads = 512;   // at most, of a row in shared memory
constexpr int kAhead = 8;           // packs that a thread of them is loading
constexpr int kWideThreads = 1024;  // of a row that is longer
constexpr int kTogether = 4;        // packs that a thread of them loads at once

__device__ inline float exponential(float x) { return cuda::exp2_approximate(x * 1.44269504f); }
__device__ inline double exponential(double x) { return ::exp(x); }
__device__ inline float larger(float a, float b) { return ::fmaxf(a, b); }
__device__ inline double larger(double a, double b) { return a > b ? a : b; }

// f(column, part) for the packs of this thread in the block's row, of which `cols` columns count.
// Whole packs start on vectors.
template <class T, class F>
__device__ void over_row(const T* row, int cols, F&& f) {
  const int step = static_cast<int>(blockDim.x) * kPack;
  for (int c = static_cast<int>(threadIdx.x) * kPack - misalignment(row); c < cols; c += step)
    f(c, part_of(c, cols));
}
// f(column, pack) for the packs of this thread up to `end`. Columns from `cols` on are loaded as 0.
// The row starts on a vector.
template <class T, class F>
__device__ void over_wide_row(const T* row, int cols, int end, F&& f) {
  constexpr int kStep = kWideThreads * kPack;
  int c = static_cast<int>(threadIdx.x) * kPack;
  for (; c + (kTogether - 1) * kStep + kPack <= cols; c += kTogether * kStep) {
    Eight<T> x[kTogether];
    TFM_UNROLL
    for (int k = 0; k < kTogether; ++k) x[k] = load_pack(row + c + k * kStep, Whole{});
    TFM_UNROLL
    for (int k = 0; k < kTogether; ++k) f(c + k * kStep, x[k]);
  }
  for (; c < end; c += kStep) f(c, load_pack(row + c, part_of(c, cols)));
}
// f of a part, which is Whole where it can be. Exponentials of doubles are too long to have twice.
template <class T, class F>
__device__ void with_part(Part part, F&& f) {
  if (sizeof(T) < 8 && part.full())
    f(Whole{});
  else
    f(part);
}

template <class T>
__device__ int columns_of(const CrossEntropyArgs<T>& a) {
  return static_cast<int>(a.cols);
}
template <class T>
__device__ int written_columns(const CrossEntropyArgs<T>& a) {
  return static_cast<int>(a.padded_cols > a.cols ? a.padded_cols : a.cols);
}
// Column of the row's label in this part of the vocabulary, or -1.
template <class T>
__device__ int label_column(const CrossEntropyArgs<T>& a, std::int64_t r) {
  const std::int64_t c = a.labels[r] - a.vocab_begin;
  return a.labels[r] >= 0 && c >= 0 && c < a.cols ? static_cast<int>(c) : -1;
}
// Columns whose ties with the maximum count.
template <class T>
__device__ int columns_before_label(const CrossEntropyArgs<T>& a, std::int64_t r) {
  const std::int64_t c = a.correct ? a.labels[r] - a.vocab_begin : 0;
  return c < a.cols ? static_cast<int>(c) : columns_of(a);
}

// What a thread knows of the columns that it has come to.
template <class T>
struct RowSums {
  using W = Accum<T>;
  bool smoothed;  // whether the sum of logits is needed
  W max = -static_cast<W>(INFINITY);
  double of[3] = {0, 0, 0};  // exp(logit - max), logits, columns before the label's that reach max

  __device__ explicit RowSums(const CrossEntropyArgs<T>& a) : smoothed(a.smoothing != W{0}) {}
  __device__ void raise(W to) {
    if (!(to > max)) return;
    of[0] *= exponential(max - to);
    of[2] = 0;
    max = to;
  }
  template <class P>
  __device__ void add(const Eight<T>& x, P part, int before) {
    W most = max;
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i)
      if (part.has(i)) most = larger(x[i], most);
    raise(most);
    const W origin = max == -static_cast<W>(INFINITY) ? W{0} : max;
    W exps = 0;
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i)
      if (part.has(i)) exps += exponential(x[i] - origin);
    of[0] += exps;
    if (smoothed) {
      W logits = 0;
      TFM_UNROLL
      for (int i = 0; i < kPack; ++i) logits += x[i];
      of[1] += logits;
    }
    if (before <= 0) return;
    int ties = 0;
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) ties += part.has(i) && i < before && x[i] == max;
    of[2] += ties;
  }
};

// Makes the threads' sums those of the row, and stores them. `row`: where the label's logit is
// read.
template <class T>
__device__ void join(const CrossEntropyArgs<T>& a, std::int64_t r, const T* row, RowSums<T>& sums) {
  using W = Accum<T>;
  double* shared = cuda::shared_memory<double>();  // four of each warp
  W max[1] = {sums.max};
  over_block(max, reinterpret_cast<W*>(shared), Maximum{});
  sums.raise(max[0]);
  over_block(sums.of, shared + blockDim.x / kWarp, Sum{});
  if (threadIdx.x > 0) return;
  const int label = label_column(a, r);
  a.max[r] = sums.max;
  a.sums[r] = static_cast<W>(sums.of[0]);
  a.sums[a.rows + r] = label < 0 ? W{0} : cuda::widen<T>(row[label]);
  a.sums[2 * a.rows + r] = static_cast<W>(a.correct ? sums.of[2] : sums.of[1]);
}
constexpr std::size_t shared_of_sums(int threads) { return 4 * sizeof(double) * threads / kWarp; }

template <class T>
struct RowGradient {
  using W = Accum<T>;
  int label;
  W max, scale, uniform, hit, inverse_cap;  // 0: no soft cap

  __device__ RowGradient(const CrossEntropyArgs<T>& a, std::int64_t r, W max, W sum)
      : label(label_column(a, r)),
        max(max),
        scale(a.factor(a.labels[r]) / sum),
        uniform(a.smoothing == W{0}
                    ? W{0}
                    : a.factor(a.labels[r]) * a.smoothing / static_cast<W>(a.vocab_size)),
        hit(a.factor(a.labels[r]) * (W{1} - a.smoothing)),
        inverse_cap(a.softcap > W{0} ? 1 / a.softcap : W{0}) {}
  // Of the logits x from column c on; 0 where there is none.
  template <class P>
  __device__ void operator()(int c, P part, const Eight<T>& x, W (&d)[kPack]) const {
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i)
      d[i] = part.has(i) ? exponential(x[i] - max) * scale - uniform : W{0};
    if (label >= c && label < c + kPack) {
      TFM_UNROLL
      for (int i = 0; i < kPack; ++i)
        if (c + i == label) d[i] -= hit;
    }
    if (inverse_cap == W{0}) return;
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) d[i] *= 1 - x[i] * inverse_cap * (x[i] * inverse_cap);
  }
};

// A row without a label has no gradient.
template <class T>
__device__ void clear_row(const CrossEntropyArgs<T>& a, T* row) {
  over_row(row, written_columns(a), [&](int c, Part part) {
    const Accum<T> zeros[kPack] = {};
    store_pack(row + c, part, zeros);
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads) statistics_kernel(CrossEntropyArgs<T> a) {
  const std::int64_t r = a.rows - 1 - blockIdx.x;
  const int before = columns_before_label(a, r);
  const T* row = a.logits + r * a.stride;
  RowSums<T> sums(a);
  over_row(row, columns_of(a), [&](int c, Part part) {
    const auto x = load_pack(row + c, part);
    with_part<T>(part, [&](auto some) { sums.add(x, some, before - c); });
  });
  join(a, r, row, sums);
}

template <class T>
__global__ void __launch_bounds__(kThreads) gradient_kernel(CrossEntropyArgs<T> a) {
  const std::int64_t r = blockIdx.x;
  T* row = a.logits + r * a.stride;
  if (a.labels[r] < 0) return clear_row(a, row);
  const RowGradient<T> gradient(a, r, a.max[r], a.sums[r]);
  const int cols = columns_of(a);
  over_row(row, written_columns(a), [&](int c, Part part) {
    const auto x = load_pack(row + c, part);
    Accum<T> d[kPack];
    with_part<T>(part_of(c, cols), [&](auto some) { gradient(c, some, x, d); });
    store_pack(row + c, part, d);
  });
}

// Both, of a row that waits in shared memory in between. A thread reads there what it copied
// itself: only the label's logit needs the barrier. Rows start on vectors.
template <class T>
__global__ void __launch_bounds__(kHeldThreads) held_kernel(CrossEntropyArgs<T> a) {
  using W = Accum<T>;
  const std::int64_t r = a.rows - 1 - blockIdx.x;
  const int before = columns_before_label(a, r), cols = columns_of(a),
            first = static_cast<int>(threadIdx.x) * kPack,
            step = static_cast<int>(blockDim.x) * kPack;
  T *row = a.logits + r * a.stride,
    *held = reinterpret_cast<T*>(cuda::shared_memory() + shared_of_sums(blockDim.x));
  if (a.labels[r] < 0) return clear_row(a, row);
  const auto copy = [&](int c) {
    if (c < cols) {
      TFM_UNROLL
      for (int v = 0; v < kPack; v += kVector<T>) {
        const int left = cols - c - v;
        cuda::copy_async<16>(held + c + v, row + c + v,
                             left >= kVector<T> ? 16
                             : left > 0         ? left * static_cast<int>(sizeof(T))
                                                : 0);
      }
    }
    cuda::copy_async_commit();
  };
  RowSums<T> sums(a);
  int next = first;
  for (int k = 0; k < kAhead; ++k, next += step) copy(next);
  for (int c = first; c < cols; c += step, next += step) {
    copy(next);
    cuda::copy_async_wait<kAhead>();
    const auto x = load_pack(held + c, Whole{});
    with_part<T>(part_of(c, cols), [&](auto some) { sums.add(x, some, before - c); });
  }
  join(a, r, held, sums);
  const RowGradient<T> gradient(a, r, sums.max, static_cast<W>(sums.of[0]));
  const int written = written_columns(a);
  for (int c = first; c < written; c += step) {
    const auto x = c < cols ? load_pack(held + c, Whole{}) : Eight<T>{};
    W d[kPack];
    with_part<T>(part_of(c, cols), [&](auto some) { gradient(c, some, x, d); });
    store_pack(row + c, part_of(c, written), d);
  }
}

// Both, of a row that is read again, mostly from the L2 cache, as a multiprocessor has one block.
// Rows start on vectors.
template <class T>
__global__ void __launch_bounds__(kWideThreads) wide_kernel(CrossEntropyArgs<T> a) {
  using W = Accum<T>;
  const std::int64_t r = a.rows - 1 - blockIdx.x;
  const int before = columns_before_label(a, r), cols = columns_of(a);
  T* row = a.logits + r * a.stride;
  if (a.labels[r] < 0) return clear_row(a, row);
  RowSums<T> sums(a);
  over_wide_row(row, cols, cols, [&](int c, const Eight<T>& x) {
    with_part<T>(part_of(c, cols), [&](auto some) { sums.add(x, some, before - c); });
  });
  join(a, r, row, sums);
  cuda::block_barrier();  // the label's logit is read
  const RowGradient<T> gradient(a, r, sums.max, static_cast<W>(sums.of[0]));
  const int written = written_columns(a);
  over_wide_row(row, cols, written, [&](int c, const Eight<T>& x) {
    W d[kPack];
    with_part<T>(part_of(c, cols), [&](auto some) { gradient(c, some, x, d); });
    store_pack(row + c, part_of(c, written), d);
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads) combine_kernel(CombineArgs<T> a) {
  const std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (r < a.rows) combine_row(a, r, [](Accum<T> x) { return exponential(x); });
}

constexpr int kLossThreads = 1024;

// One block: every 1024th row a thread.
template <class T>
__global__ void __launch_bounds__(kLossThreads) loss_kernel(CrossEntropyArgs<T> a) {
  double sum[2] = {0, 0};  // losses, correct rows
  for (std::int64_t r = threadIdx.x; r < a.rows; r += kLossThreads) {
    a.loss[r] = row_loss(a, r, [](double x) { return ::log(x); });
    sum[0] += a.loss[r];
    if (a.correct) sum[1] += is_correct(a, r);
  }
  over_block(sum, cuda::shared_memory<double>(), Sum{});
  if (threadIdx.x > 0) return;
  *a.total += sum[0];
  if (a.correct) *a.correct += sum[1];
}

// A block for each row that there is.
template <class T>
void launch_rows(cuda::Stream& stream, void (*kernel)(CrossEntropyArgs<T>), int threads,
                 std::size_t shared_bytes, const CrossEntropyArgs<T>& a) {
  if (a.rows > 0)
    cuda::launch(stream, kernel, static_cast<unsigned>(a.rows), threads, shared_bytes, a);
}

}  // namespace

template <class T>
void cross_entropy_statistics(cuda::Stream& stream, const CrossEntropyArgs<T>& a) {
  launch_rows(stream, statistics_kernel<T>, kThreads, shared_of_sums(kThreads), a);
}
template <class T>
void cross_entropy_gradient(cuda::Stream& stream, const CrossEntropyArgs<T>& a) {
  launch_rows(stream, gradient_kernel<T>, kThreads, 0, a);
}
template <class T>
void cross_entropy_statistics_and_gradient(cuda::Stream& stream, const CrossEntropyArgs<T>& a) {
  if (a.stride % kVector<T> != 0 || misalignment(a.logits) != 0) {
    cross_entropy_statistics(stream, a);
    return cross_entropy_gradient(stream, a);
  }
  const int threads = a.cols > 4 * kThreads * kPack ? kHeldThreads : kThreads;
  const std::size_t bytes =
      shared_of_sums(threads) + static_cast<std::size_t>(round_up(a.cols, kPack)) * sizeof(T);
  if (holds_row(a.cols, sizeof(T)) && bytes <= cuda::shared_memory_limit())
    launch_rows(stream, held_kernel<T>, threads, bytes, a);
  else
    launch_rows(stream, wide_kernel<T>, kWideThreads, shared_of_sums(kWideThreads), a);
}
template <class T>
void cross_entropy_combine(cuda::Stream& stream, const CombineArgs<T>& a) {
  if (a.rows > 0)
    cuda::launch(stream, combine_kernel<T>, static_cast<unsigned>(ceil_div(a.rows, kThreads)),
                 kThreads, 0, a);
}
template <class T>
void cross_entropy_loss(cuda::Stream& stream, const CrossEntropyArgs<T>& a) {
  cuda::launch(stream, loss_kernel<T>, 1, kLossThreads, 2 * sizeof(double) * kLossThreads / kWarp,
               a);
}

#define TFM_INSTANTIATE(T)                                                                        \
  template void cross_entropy_statistics(cuda::Stream&, const CrossEntropyArgs<T>&);              \
  template void cross_entropy_statistics_and_gradient(cuda::Stream&, const CrossEntropyArgs<T>&); \
  template void cross_entropy_gradient(cuda::Stream&, const CrossEntropyArgs<T>&);                \
  template void cross_entropy_combine(cuda::Stream&, const CombineArgs<T>&);                      \
  template void cross_entropy_loss(cuda::Stream&, const CrossEntropyArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
