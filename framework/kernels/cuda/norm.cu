// LayerNorm and RMSNorm, alone or of a residual that is made on the way. A row is read once and
// kept in registers, kPacks packs a thread, up to the width that fits; longer rows (kPacks 0) are
// read again for each sum. Gradients of gain and shift: partial sums of row blocks, then
// column_fold. Rows that pass through shared memory, and a warp for each row, were no faster on an
// H200.
#include <cmath>
#include <type_traits>

#include "kernels/cuda/column_fold.h"
#include "kernels/cuda/dropout_pack.h"
#include "kernels/cuda/reductions.h"
#include "kernels/norm.h"
#include "kernels/scratch.h"

namespace tfm::kernels {
namespace {

constexpr int kHeld = 4;  // packs a thread can hold in forward

// A row's packs of one thread, out of `threads` that share it: held, or loaded at every use. P:
// Part or Whole.
template <class T, int kPacks, class P>
struct Row {
  using Column = std::conditional_t<kPacks == 0, std::int64_t, int>;
  const T* x;
  Column cols, first, step;
  Eight<T> held[kPacks > 0 ? kPacks : 1];

  // load(column, part)
  template <class F>
  __device__ Row(const T* row, std::int64_t n, int thread, int threads, F&& load)
      : x(row), cols(static_cast<Column>(n)), first(thread * kPack), step(threads * kPack) {
    TFM_UNROLL
    for (int k = 0; k < kPacks; ++k)
      if (const Column c = first + k * step; c < cols) held[k] = load(c, part_as<P>(c, cols));
  }
  __device__ Row(const T* row, std::int64_t n, int thread, int threads)
      : Row(row, n, thread, threads, [&](Column c, P part) { return load_pack(row + c, part); }) {}
  // f(k, column, part, k-th pack)
  template <class F>
  __device__ void each(F&& f) const {
    if constexpr (kPacks == 0) {
      for (Column c = first; c < cols; c += step)
        f(0, c, part_as<P>(c, cols), load_pack(x + c, part_as<P>(c, cols)));
    } else {
      TFM_UNROLL
      for (int k = 0; k < kPacks; ++k)
        if (const Column c = first + k * step; c < cols) f(k, c, part_as<P>(c, cols), held[k]);
    }
  }
};

// Where the packs of a row come from: memory, or a sum that is stored on the way. of(row,
// cols)(column, part) is one.
template <class T>
struct Loaded {
  const T* x;
  RowPlaces places;
  bool whole(std::int64_t cols) const { return places.stride % kPack == 0 && whole_packs(cols, x); }
  __device__ auto of(std::int64_t row, std::int64_t cols) const {
    return [at = x + places(row, cols)](auto c, auto part) { return load_pack(at + c, part); };
  }
};
template <class T>
struct Added {
  Add<T> add;
  bool whole(std::int64_t cols) const {
    return whole_packs(cols, add.a.x, add.a.residual, add.a.y);
  }
  __device__ auto of(std::int64_t row, std::int64_t cols) const {
    return [this, row, first = row * cols](auto c, auto part) {
      Accum<T> y[kPack];
      if (add.a.dropout.p == 0)
        add.pack(first + c, part, y);
      else
        add.pack(row, c, part, y);
      store_pack(add.a.y + first + c, part, y);
      return narrow_pack<T>(y);
    };
  }
};

// kGroup threads a row: a warp of a block of kThreads, or a whole block.
template <class T, int kGroup, int kPacks, class P, class Source>
__global__ void __launch_bounds__(kThreads) norm_kernel(NormArgs<T> a, Source source) {
  using W = Accum<T>;
  constexpr int kRows = kGroup == kWarp ? kThreads / kWarp : 1;
  W* shared = cuda::shared_memory<W>();  // two sums of the warps
  const int thread = static_cast<int>(kRows > 1 ? threadIdx.x % kWarp : threadIdx.x);
  const std::int64_t r =
      static_cast<std::int64_t>(blockIdx.x) * kRows + (kRows > 1 ? threadIdx.x / kWarp : 0);
  const bool there = r < a.rows;  // the last block's warps may have none
  auto total = [&](W v, int which) {
    if constexpr (kGroup == kWarp) return over_warp(v, Sum{});
    W all[1] = {v};
    over_block(all, shared + which * (kGroup / kWarp), Sum{});
    return all[0];
  };
  const Row<T, kPacks, P> row(a.x + a.places(there ? r : 0, a.cols), there ? a.cols : 0, thread,
                              kGroup, source.of(r, a.cols));
  T* y_row = a.y + a.places(r, a.cols);
  W mean = 0, square = 0;
  if (!a.rms) {
    row.each([&](int, auto, P, const Eight<T>& x) {
      TFM_UNROLL
      for (int i = 0; i < kPack; ++i) mean += x[i];
    });
    mean = total(mean, 0) / static_cast<W>(a.cols);
  }
  row.each([&](int, auto, P part, const Eight<T>& x) {
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i)
      if (part.has(i)) square += (x[i] - mean) * (x[i] - mean);
  });
  const W mean_square = total(square, 1) / static_cast<W>(a.cols), eps = static_cast<W>(a.eps),
          rstd =
              1 / (a.eps_outside ? std::sqrt(mean_square * unbiased_share<W>(a.cols, a.rms)) + eps
                                 : std::sqrt(mean_square + eps));
  if (thread == 0 && there) {
    if (!a.rms && a.mean) a.mean[r] = mean;
    if (a.rstd) a.rstd[r] = rstd;
  }
  row.each([&](int, auto c, P part, const Eight<T>& x) {
    const auto gain = load_pack(a.gain + c, part),
               shift = a.shift ? load_pack(a.shift + c, part) : Eight<T>{};
    W y[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i)
      y[i] = (x[i] - mean) * rstd * (gain[i] + a.gain_offset) + shift[i];
    store_pack(y_row + c, part, y);
  });
}

// What a thread adds up over rows for its packs, and what it keeps of a row, where registers allow:
// h = gain * dy and n = (x - mean) * rstd.
template <class T, int kPacks>
struct Gradients {
  using W = Accum<T>;
  static constexpr bool kKept = kPacks > 0 && kPacks * sizeof(T) <= 4;
  static constexpr int kSums = kPacks > 0 ? kPacks : 1;
  W gain[kSums][kPack] = {}, shift[kSums][kPack] = {}, h[kSums][kPack] = {}, n[kSums][kPack] = {};

  // The k-th pack of a row; `sums`: of h and h n.
  __device__ void add(int k, const Eight<T>& x, const Eight<T>& dy, const Eight<T>& gains, W offset,
                      W mean, W rstd, W (&sums)[2]) {
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) {
      const W own_n = (x[i] - mean) * rstd, own_h = dy[i] * (gains[i] + offset);
      sums[0] += own_h;
      sums[1] += own_h * own_n;
      gain[k][i] += dy[i] * own_n;
      shift[k][i] += dy[i];
      if constexpr (kKept) h[k][i] = own_h, n[k][i] = own_n;
    }
  }
  template <class P>
  __device__ void store(int k, W* dgain, W* dshift, P part, bool accumulate) {
    store_pack(dgain, part, gain[k], accumulate);
    store_pack(dshift, part, shift[k], accumulate);
  }
};

// dx = rstd * (h - mean of h - n * mean of h n), dgain = sum of dy n, dshift = sum of dy. A block
// takes a block of rows; `partial` (blocks, 2, cols) gets its sums of dgain and dshift. Where h and
// n are kept, the next row is loaded before a row's means are waited for.
template <class T, int kPacks, class P>
__global__ void __launch_bounds__(kNormBackwardThreads)
    norm_backward_kernel(NormBackwardArgs<T> a, std::int64_t rows_a_block, Accum<T>* partial) {
  using W = Accum<T>;
  using Packs = Row<T, kPacks, P>;
  constexpr bool kKept = Gradients<T, kPacks>::kKept;
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  W *shared = cuda::shared_memory<W>(),
    *other = shared + 2 * (threads / kWarp);  // sums of the warps, for even and odd rows
  const std::int64_t begin = blockIdx.x * rows_a_block,
                     end = begin + rows_a_block < a.rows ? begin + rows_a_block : a.rows;
  const W share = 1 / static_cast<W>(a.cols);
  W *dgain = partial + blockIdx.x * 2 * a.cols, *dshift = dgain + a.cols;
  Gradients<T, kPacks> gradients;
  std::int64_t at = a.places(begin, a.cols);
  Packs row(a.x + at, a.cols, thread, threads), drow(a.dy + at, a.cols, thread, threads);
  const auto dy_of = [&](int k, auto c, P part) {
    return kPacks > 0 ? drow.held[k] : load_pack(drow.x + c, part);
  };
  for (std::int64_t r = begin; r < end; ++r) {
    T* dx_row = a.dx + at;
    at = a.places(r + 1, a.cols);
    const auto load_next = [&] {
      if (r + 1 < end)
        row = Packs(a.x + at, a.cols, thread, threads),
        drow = Packs(a.dy + at, a.cols, thread, threads);
    };
    const W mean = a.rms ? W{0} : a.mean[r], rstd = a.rstd[r];
    W mean_of[2] = {0, 0};  // h and h n
    row.each([&](int k, auto c, P part, const Eight<T>& x) {
      gradients.add(k, x, dy_of(k, c, part), load_pack(a.gain + c, part), a.gain_offset, mean, rstd,
                    mean_of);
      if constexpr (kPacks == 0) {  // this thread alone comes to these columns
        gradients.store(0, dgain + c, dshift + c, part, r > begin);
        gradients = {};
      }
    });
    if constexpr (kKept) load_next();
    if (a.dx) {
      over_block(mean_of, shared, Sum{});
      W* const used = shared;
      shared = other, other = used;
      mean_of[0] = a.rms ? W{0} : mean_of[0] * share;
      mean_of[1] *= share;
      if (a.eps_outside) mean_of[1] *= slope_factor(a, rstd);
      row.each([&](int k, auto c, P part, const Eight<T>& x) {
        Eight<T> dy, gain;
        if constexpr (!kKept) dy = dy_of(k, c, part), gain = load_pack(a.gain + c, part);
        W dx[kPack];
        TFM_UNROLL
        for (int i = 0; i < kPack; ++i) {
          const W h = kKept ? gradients.h[k][i] : dy[i] * (gain[i] + a.gain_offset),
                  n = kKept ? gradients.n[k][i] : (x[i] - mean) * rstd;
          dx[i] = (h - mean_of[0] - n * mean_of[1]) * rstd;
        }
        store_pack(dx_row + c, part, dx, a.accumulate_dx);
      });
    }
    if constexpr (!kKept) load_next();
  }
  if constexpr (kPacks > 0)
    row.each([&](int k, auto c, P part, const Eight<T>&) {
      gradients.store(k, dgain + c, dshift + c, part, false);
    });
}

// The widest row that is held in registers.
constexpr std::int64_t kLongest = kThreads * kPack * kHeld;

template <class T, int kGroup, int kPacks, class P, class Source>
void start(cuda::Stream& stream, const NormArgs<T>& a, const Source& source) {
  constexpr int kRows = kGroup == kWarp ? kThreads / kWarp : 1;
  cuda::launch(stream, norm_kernel<T, kGroup, kPacks, P, Source>,
               static_cast<unsigned>(ceil_div(a.rows, kRows)), kRows * kGroup,
               2 * (kGroup / kWarp) * sizeof(Accum<T>), a, source);
}

template <class T, class Source>
void held(cuda::Stream& stream, const NormArgs<T>& a, const Source& source) {
  if (a.rows <= 0) return;
  constexpr int kHalf = kThreads / 2;
  if constexpr (sizeof(T) < 8)
    if (whole_packs(a.cols, a.y, a.gain, a.shift) && source.whole(a.cols)) {
      if (a.cols <= kWarp * kPack) return start<T, kWarp, 1, Whole>(stream, a, source);
      if (a.cols <= kWarp * kPack * kHeld) return start<T, kWarp, kHeld, Whole>(stream, a, source);
      if (a.cols <= kHalf * kPack * 2) return start<T, kHalf, 2, Whole>(stream, a, source);
      if (a.cols <= kHalf * kPack * kHeld) return start<T, kHalf, kHeld, Whole>(stream, a, source);
      return start<T, kThreads, kHeld, Whole>(stream, a, source);
    }
  if (a.cols <= kWarp * kPack * kHeld) return start<T, kWarp, kHeld, Part>(stream, a, source);
  start<T, kThreads, kHeld, Part>(stream, a, source);
}

}  // namespace

template <class T>
void norm(cuda::Stream& stream, const NormArgs<T>& a) {
  if (a.cols <= kLongest)
    held(stream, a, Loaded<T>{a.x, a.places});
  else if (a.rows > 0)
    start<T, kThreads, 0, Part>(stream, a, Loaded<T>{a.x, a.places});
}

template <class T>
void add_norm(cuda::Stream& stream, const AddNormArgs<T>& a) {
  TFM_CHECK(a.norm.x == a.add.y && a.norm.rows == a.add.rows && a.norm.cols == a.add.cols &&
                !a.add.accumulate,
            "the norm is of the sum");
  if (a.norm.cols <= kLongest) return held(stream, a.norm, Added<T>{Add<T>(a.add)});
  dropout_add(stream, a.add);
  norm(stream, a.norm);
}

namespace {

template <class T, class P>
auto backward_kernel(std::int64_t cols) {
  if (cols <= kNormBackwardThreadsOfOnePack * kPack) return norm_backward_kernel<T, 1, P>;
  if constexpr (sizeof(T) < 8) {  // doubles would take more registers than there are
    if (cols <= kNormBackwardThreads * kPack * 2) return norm_backward_kernel<T, 2, P>;
  } else if (cols <= kNormBackwardThreads * kPack) {
    return norm_backward_kernel<T, 1, P>;
  }
  return norm_backward_kernel<T, 0, P>;
}

}  // namespace

template <class T>
void norm_backward(cuda::Stream& stream, const NormBackwardArgs<T>& a) {
  if (a.cols <= 0) return;
  const auto [blocks, rows_a_block] = norm_backward_partition(a.rows, a.cols, sizeof(T));
  const std::int64_t threads = norm_backward_threads(a.cols, sizeof(T));
  cuda::Scratch<Accum<T>> partial(stream, blocks * 2 * a.cols);
  auto kernel = backward_kernel<T, Part>(a.cols);
  if constexpr (sizeof(T) < 8)
    if (a.places.stride % kPack == 0 && whole_packs(a.cols, a.x, a.dy, a.gain, a.dx))
      kernel = backward_kernel<T, Whole>(a.cols);
  if (blocks > 0)
    cuda::launch(stream, kernel, static_cast<unsigned>(blocks), static_cast<unsigned>(threads),
                 4 * (threads / kWarp) * sizeof(Accum<T>), a, rows_a_block, partial);
  column_fold<Accum<T>>(stream, {{{partial, a.dgain, a.accumulate_dgain},
                                  {partial + a.cols, a.dshift, a.accumulate_dshift}},
                                 blocks,
                                 2 * a.cols,
                                 a.cols});
}

#define TFM_INSTANTIATE(T)                                      \
  template void norm(cuda::Stream&, const NormArgs<T>&);        \
  template void add_norm(cuda::Stream&, const AddNormArgs<T>&); \
  template void norm_backward(cuda::Stream&, const NormBackwardArgs<T>&);
TFM_FLOATS(TFM_INSTANTIATE)

}  // namespace tfm::kernels
