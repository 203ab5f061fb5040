// Parameter updates, and the exact sum of squares.
#include <algorithm>

#include "kernels/cuda/exact_squares.h"
#include "kernels/optimizer.h"

namespace tfm::kernels {
namespace {

constexpr int kTile = kThreads * kPack;  // elements of a block

// What a thread has of them: vectors that lie kThreads vectors apart, so that the accesses of a
// warp are contiguous.
template <class T>
struct Tile {
  static constexpr int kVectors = kPack / kVector<T>;
  Vector<T> at[kVectors];
};

// Its first element is element `first` of the n at x; those of a whole tile all exist, at addresses
// of vectors.
template <class T, class X>
__device__ Tile<T> load_tile(X x, std::int64_t first, std::int64_t n, bool whole) {
  Tile<T> to{};
  TFM_UNROLL
  for (int k = 0; k < to.kVectors; ++k) {
    const std::int64_t at = first + k * kThreads * kVector<T>;
    if (whole) {
      to.at[k] = load_vector<kVector<T>>(x + at);
    } else {
      TFM_UNROLL
      for (int i = 0; i < kVector<T>; ++i)
        if (at + i < n) to.at[k].at[i] = x[at + i];
    }
  }
  return to;
}
template <class T, class X>
__device__ void store_tile(X x, std::int64_t first, std::int64_t n, bool whole,
                           const Tile<T>& from) {
  TFM_UNROLL
  for (int k = 0; k < from.kVectors; ++k) {
    const std::int64_t at = first + k * kThreads * kVector<T>;
    if (whole) {
      store_vector(x + at, from.at[k]);
    } else {
      TFM_UNROLL
      for (int i = 0; i < kVector<T>; ++i)
        if (at + i < n) store_vector(x + (at + i), cuda::Pack<T, 1>{from.at[k].at[i]});
    }
  }
}

template <class Rule, class T, class P>
__global__ void __launch_bounds__(kThreads)
    update_kernel(const __grid_constant__ Ranges<UpdateRange<T, P>> ranges,
                  const Steps<Rule, T>* steps) {
  if (!steps->applied) return;
  const int which = ranges.of_block(blockIdx.x);
  const UpdateRange<T, P>& r = ranges.at[which];
  const std::int64_t begin = std::int64_t{blockIdx.x - ranges.first_block[which]} * kTile,
                     first = begin + threadIdx.x * kVector<T>;
  const auto fits = [](auto... x) { return (vectors_fit<kVector<T>>(x) && ...); };
  const bool whole = r.n - begin >= kTile && fits(r.param, r.grad, r.m, r.v, r.average);
  auto p = load_tile<T>(r.param, first, r.n, whole);
  Tile<T> m{}, v{};
  if (r.m) m = load_tile<T>(r.m, first, r.n, whole);
  if (r.v) v = load_tile<T>(r.v, first, r.n, whole);
  const auto g = load_tile<T>(r.grad, first, r.n, whole);
  const auto step = r.decays ? steps->decaying : steps->plain;
  TFM_UNROLL
  for (int k = 0; k < g.kVectors; ++k) TFM_UNROLL
  for (int i = 0; i < kVector<T>; ++i)
    step(p.at[k].at[i], g.at[k].at[i], m.at[k].at[i], v.at[k].at[i]);
  store_tile(r.param, first, r.n, whole, p);
  if (r.m) store_tile(r.m, first, r.n, whole, m);
  if (r.v) store_tile(r.v, first, r.n, whole, v);
  if (!r.average) return;
  auto average = load_tile<T>(r.average, first, r.n, whole);
  TFM_UNROLL
  for (int k = 0; k < g.kVectors; ++k) TFM_UNROLL
  for (int i = 0; i < kVector<T>; ++i)
    average.at[k].at[i] += (p.at[k].at[i] - average.at[k].at[i]) * step.rate;
  store_tile(r.average, first, r.n, whole, average);
}

template <class P>
struct Swap {
  SwapArgs<P> a;
  __device__ void operator()(std::int64_t at, Part part) const {
    const auto p = load_pack(a.param + at, part), average = load_pack(a.average + at, part);
    Accum<P> to_param[kPack], to_average[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) to_param[i] = average[i], to_average[i] = p[i];
    store_pack(a.param + at, part, to_param);
    store_pack(a.average + at, part, to_average);
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    square_sum_kernel(const T* x, std::int64_t n, const StepNumbers* numbers, TermSum* sums) {
  const double scale = 1 / numbers->loss_scale;
  const TermSum sum = over_block(sum_of_spans<T>(x, n, scale * scale, blockIdx.x, gridDim.x));
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// One block; `count` sums.
__global__ void __launch_bounds__(kThreads)
    fold_kernel(const TermSum* sums, std::int64_t count, StepOutcome* outcome) {
  const TermSum sum = over_block(sum_of_blocks(sums, count));
  if (threadIdx.x > 0) return;
  SquareSum all = square_sum_of(sum);
  for (std::size_t k = 0; k < kMostObjectives; ++k)
    all.bad_losses += finite(outcome->loss[k]) ? 0 : 1;
  all.bad_losses += outcome->excess > 0 ? 1 : 0;
  outcome->squares = all;
}

__global__ void clip_kernel(ClipArgs a) { decide_update(a); }

}  // namespace

template <class Rule, class T, class P>
void update(cuda::Stream& stream, const UpdateArgs<Rule, T, P>& a) {
  const Prepared<Steps<Rule, T>> steps(stream, a.rule, a.numbers, a.outcome);
  each_launch(
      a.ranges, [](const UpdateRange<T, P>& r) { return ceil_div(r.n, kTile); },
      [&](const Ranges<UpdateRange<T, P>>& some) {
        cuda::launch(stream, update_kernel<Rule, T, P>, some.blocks(), kThreads, 0, some, steps);
      });
}

template <class P>
void swap(cuda::Stream& stream, const SwapArgs<P>& a) {
  over_array(stream, a.average, a.n, Swap<P>{a});
}

template <class T>
void square_sum(cuda::Stream& stream, const SquareSumArgs<T>& a) {
  std::int64_t blocks = 0;
  for (const Range& r : a.ranges) blocks += square_blocks(r.end - r.begin);
  cuda::Scratch<TermSum> sums(stream, blocks);
  TermSum* next = sums;
  for (const Range& r : a.ranges)
    if (const std::int64_t n = square_blocks(r.end - r.begin)) {
      cuda::launch(stream, square_sum_kernel<T>, static_cast<unsigned>(n), kThreads,
                   kSpan * sizeof(T), a.x + r.begin, r.end - r.begin, a.numbers, next);
      next += n;
    }
  cuda::launch(stream, fold_kernel, 1, kThreads, kTermSumShared, sums, blocks, a.outcome);
}

void clip(cuda::Stream& stream, const ClipArgs& a) {
  cuda::launch(stream, clip_kernel, 1, 1, 0, a);
}

#define TFM_INSTANTIATE_RULE(Rule, T, P) \
  template void update(cuda::Stream&, const UpdateArgs<Rule, T, P>&);
#define TFM_INSTANTIATE(T, P)                            \
  template void swap(cuda::Stream&, const SwapArgs<P>&); \
  TFM_UPDATE_RULES(TFM_INSTANTIATE_RULE, T, P)
TFM_UPDATES(TFM_INSTANTIATE)
template void square_sum(cuda::Stream&, const SquareSumArgs<float>&);
template void square_sum(cuda::Stream&, const SquareSumArgs<double>&);

}  // namespace tfm::kernels
