// LayerNorm and RMSNorm, alone or of a residual that is made on the way. A row is read once and kept in registers, kPacks packs a
// thread, up to the width that fits; longer rows (kPacks 0) are read again for each sum. Gradients of gain and shift: partial sums of row
// blocks, then column_fold.
#include "kernels/norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/column_fold.h"
#include "kernels/cuda/dropout_pack.h"

namespace tfm::kernels {
namespace {

constexpr int kHeld = 4;  // packs a thread can hold in forward
constexpr int kBackwardThreads = 512;

// A row's packs of one thread, out of `threads` that share it: held, or loaded at every use.
template <class T, int kPacks> struct Row {
  const T* x;
  std::int64_t cols, first, step;
  Eight<T> held[kPacks > 0 ? kPacks : 1];

  // load(column, part)
  template <class F>
  __device__ Row(const T* row, std::int64_t n, int thread, int threads, F&& load) : x(row), cols(n), first(thread * kPack), step(threads * kPack) {
    TFM_UNROLL
    for (int k = 0; k < kPacks; ++k)
      if (const std::int64_t c = first + k * step; c < cols) held[k] = load(c, part_of(c, cols));
  }
  __device__ Row(const T* row, std::int64_t n, int thread, int threads)
      : Row(row, n, thread, threads, [&](std::int64_t c, Part part) { return load_pack(row + c, part); }) {}
  // f(k, column, part, k-th pack)
  template <class F> __device__ void each(F&& f) const {
    if constexpr (kPacks == 0) {
      for (std::int64_t c = first; c < cols; c += step) f(0, c, part_of(c, cols), load_pack(x + c, part_of(c, cols)));
    } else {
      TFM_UNROLL
      for (int k = 0; k < kPacks; ++k)
        if (const std::int64_t c = first + k * step; c < cols) f(k, c, part_of(c, cols), held[k]);
    }
  }
};

template <class T> struct Loaded {
  const T* x;
  __device__ Eight<T> operator()(std::int64_t row, std::int64_t cols, std::int64_t c, Part part) const { return load_pack(x + row * cols + c, part); }
};
template <class T> struct Added {
  Add<T> add;
  __device__ Eight<T> operator()(std::int64_t row, std::int64_t cols, std::int64_t c, Part part) const {
    Wide<T> y[kPack];
    if (add.a.dropout.p == 0)
      add.pack(row * cols + c, part, y);
    else
      add.pack(row, c, part, y);
    store_pack(add.a.y + row * cols + c, part, y);
    Eight<T> stored{};
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) stored.set(i, cuda::narrow<T>(y[i]));
    TFM_UNROLL
    for (std::uint32_t& word : stored.word) cuda::hide(word);  // from contraction with the sums: the norm has the bits that one of a load has
    return stored;
  }
};

// kGroup threads a row: a warp, or the whole block.
template <class T, int kGroup, int kPacks, class Source> __global__ void __launch_bounds__(kThreads) norm_kernel(NormArgs<T> a, Source source) {
  using W = Wide<T>;
  W* shared = cuda::shared_memory<W>();  // two sums of the warps
  const int thread = static_cast<int>(threadIdx.x) % kGroup;
  const std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * (kThreads / kGroup) + threadIdx.x / kGroup;
  const bool there = r < a.rows;  // the last block's warps may have none
  auto total = [&](W v, int which) {
    if constexpr (kGroup == kWarp) return over_warp(v, Sum{});
    W all[1] = {v};
    over_block(all, shared + which * (kThreads / kWarp), Sum{});
    return all[0];
  };
  const Row<T, kPacks> row(a.x + (there ? r : 0) * a.cols, there ? a.cols : 0, thread, kGroup,
                           [&](std::int64_t c, Part part) { return source(r, a.cols, c, part); });
  W mean = 0, square = 0;
  if (!a.rms) {
    row.each([&](int, std::int64_t, Part, const Eight<T>& x) {
      TFM_UNROLL
      for (int i = 0; i < kPack; ++i) mean += x[i];
    });
    mean = total(mean, 0) / static_cast<W>(a.cols);
  }
  row.each([&](int, std::int64_t, Part part, const Eight<T>& x) {
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i)
      if (part.has(i)) square += (x[i] - mean) * (x[i] - mean);
  });
  const W rstd = 1 / std::sqrt(total(square, 1) / static_cast<W>(a.cols) + static_cast<W>(a.eps));
  if (thread == 0 && there) {
    if (!a.rms && a.mean) a.mean[r] = mean;
    if (a.rstd) a.rstd[r] = rstd;
  }
  row.each([&](int, std::int64_t c, Part part, const Eight<T>& x) {
    const auto gain = load_pack(a.gain + c, part), shift = a.shift ? load_pack(a.shift + c, part) : Eight<T>{};
    W y[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) y[i] = (x[i] - mean) * rstd * gain[i] + shift[i];
    store_pack(a.y + r * a.cols + c, part, y);
  });
}

// With h = gain * dy and n = (x - mean) * rstd: dx = rstd * (h - mean of h - n * mean of h n), dgain = sum of dy n, dshift = sum of dy.
// A block takes a block of rows; `partial` (blocks, 2, cols) gets its sums of dgain and dshift.
template <class T, int kPacks>
__global__ void __launch_bounds__(kBackwardThreads) norm_backward_kernel(NormBackwardArgs<T> a, std::int64_t rows_a_block, Wide<T>* partial) {
  using W = Wide<T>;
  constexpr int kSums = kPacks > 0 ? kPacks : 1;
  W* shared = cuda::shared_memory<W>();  // sums of the warps, two at a time, for even and odd rows
  const std::int64_t begin = blockIdx.x * rows_a_block, end = begin + rows_a_block < a.rows ? begin + rows_a_block : a.rows;
  W *dgain = partial + blockIdx.x * 2 * a.cols, *dshift = dgain + a.cols;
  W gain_sum[kSums][kPack] = {}, shift_sum[kSums][kPack] = {};
  for (std::int64_t r = begin; r < end; ++r) {
    const Row<T, kPacks> row(a.x + r * a.cols, a.cols, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x)),
        drow(a.dy + r * a.cols, a.cols, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x));
    const W mean = a.rms ? W{0} : a.mean[r], rstd = a.rstd[r];
    W mean_of[2] = {0, 0};  // h and h n
    row.each([&](int k, std::int64_t c, Part part, const Eight<T>& x) {
      const auto dy = kPacks > 0 ? drow.held[k] : load_pack(drow.x + c, part), gain = load_pack(a.gain + c, part);
      TFM_UNROLL
      for (int i = 0; i < kPack; ++i) {
        const W n = (x[i] - mean) * rstd, h = dy[i] * gain[i];
        mean_of[0] += h;
        mean_of[1] += h * n;
        gain_sum[k][i] += dy[i] * n;
        shift_sum[k][i] += dy[i];
      }
      if constexpr (kPacks == 0) {  // this thread alone comes to these columns
        store_pack(dgain + c, part, gain_sum[0], r > begin);
        store_pack(dshift + c, part, shift_sum[0], r > begin);
        TFM_UNROLL
        for (int i = 0; i < kPack; ++i) gain_sum[0][i] = shift_sum[0][i] = 0;
      }
    });
    if (!a.dx) continue;
    over_block(mean_of, shared + (r - begin) % 2 * 2 * (blockDim.x / kWarp), Sum{});
    mean_of[0] = a.rms ? W{0} : mean_of[0] / static_cast<W>(a.cols);
    mean_of[1] /= static_cast<W>(a.cols);
    row.each([&](int k, std::int64_t c, Part part, const Eight<T>& x) {
      const auto dy = kPacks > 0 ? drow.held[k] : load_pack(drow.x + c, part), gain = load_pack(a.gain + c, part);
      W dx[kPack];
      TFM_UNROLL
      for (int i = 0; i < kPack; ++i) dx[i] = (dy[i] * gain[i] - mean_of[0] - (x[i] - mean) * rstd * mean_of[1]) * rstd;
      store_pack(a.dx + r * a.cols + c, part, dx, a.accumulate_dx);
    });
  }
  if constexpr (kPacks > 0) {
    TFM_UNROLL
    for (int k = 0; k < kPacks; ++k)
      if (const std::int64_t c = (threadIdx.x + k * static_cast<std::int64_t>(blockDim.x)) * kPack; c < a.cols) {
        store_pack(dgain + c, part_of(c, a.cols), gain_sum[k]);
        store_pack(dshift + c, part_of(c, a.cols), shift_sum[k]);
      }
  }
}

// The widest row that is held in registers.
constexpr std::int64_t kLongest = kThreads * kPack * kHeld;

template <class T, class Source> void start(cuda::Stream& stream, const NormArgs<T>& a, const Source& source) {
  if (a.rows <= 0) return;
  auto launch = [&](auto kernel, std::int64_t rows_a_block) {
    cuda::launch(stream, kernel, static_cast<unsigned>(ceil_div(a.rows, rows_a_block)), kThreads, 2 * (kThreads / kWarp) * sizeof(Wide<T>), a, source);
  };
  if (a.cols <= kWarp * kPack)
    launch(norm_kernel<T, kWarp, 1, Source>, kThreads / kWarp);
  else if (a.cols <= kWarp * kPack * kHeld)
    launch(norm_kernel<T, kWarp, kHeld, Source>, kThreads / kWarp);
  else if (a.cols <= kThreads * kPack)
    launch(norm_kernel<T, kThreads, 1, Source>, 1);
  else
    launch(norm_kernel<T, kThreads, kHeld, Source>, 1);
}

}  // namespace

template <class T> void norm(cuda::Stream& stream, const NormArgs<T>& a) {
  if (a.cols <= kLongest)
    start(stream, a, Loaded<T>{a.x});
  else if (a.rows > 0)
    cuda::launch(stream, norm_kernel<T, kThreads, 0, Loaded<T>>, static_cast<unsigned>(a.rows), kThreads, 2 * (kThreads / kWarp) * sizeof(Wide<T>), a,
                 Loaded<T>{a.x});
}

template <class T> void add_norm(cuda::Stream& stream, const AddNormArgs<T>& a) {
  TFM_CHECK(a.norm.x == a.add.y && a.norm.rows == a.add.rows && a.norm.cols == a.add.cols && !a.add.accumulate, "the norm is of the sum");
  if (a.norm.cols <= kLongest) return start(stream, a.norm, Added<T>{Add<T>(a.add)});
  dropout_add(stream, a.add);
  norm(stream, a.norm);
}

template <class T> void norm_backward(cuda::Stream& stream, const NormBackwardArgs<T>& a) {
  if (a.cols <= 0) return;
  const std::int64_t threads = std::min<std::int64_t>(round_up(ceil_div(a.cols, kPack), kWarp), kBackwardThreads);
  // At least 8 rows a block, and no more blocks than 128 multiprocessors of 1024 threads (of 64 registers) run at once.
  const std::int64_t rows_a_block = std::max<std::int64_t>(8, ceil_div(a.rows, 128 * (1024 / threads))), blocks = ceil_div(a.rows, rows_a_block);
  cuda::Scratch<Wide<T>> partial(stream, blocks * 2 * a.cols);
  auto kernel = a.cols <= kBackwardThreads * kPack ? norm_backward_kernel<T, 1> : norm_backward_kernel<T, 0>;
  if constexpr (sizeof(T) < 8)  // more registers than there are for doubles
    if (a.cols > kBackwardThreads * kPack && a.cols <= 2 * kBackwardThreads * kPack) kernel = norm_backward_kernel<T, 2>;
  if (blocks > 0)
    cuda::launch(stream, kernel, static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 4 * (threads / kWarp) * sizeof(Wide<T>), a,
                 rows_a_block, partial);
  if (a.dgain) column_fold<Wide<T>>(stream, partial, blocks, 2 * a.cols, a.cols, a.dgain, a.accumulate_dgain);
  if (a.dshift) column_fold<Wide<T>>(stream, partial + a.cols, blocks, 2 * a.cols, a.cols, a.dshift, a.accumulate_dshift);
}

#define TFM_INSTANTIATE(T)                               \
  template void norm(cuda::Stream&, const NormArgs<T>&); \
  template void add_norm(cuda::Stream&, const AddNormArgs<T>&); \
  template void norm_backward(cuda::Stream&, const NormBackwardArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
