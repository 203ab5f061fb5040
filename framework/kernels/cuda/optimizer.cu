// Parameter updates, and the exact sum of squares.
#include <algorithm>
#include <cmath>

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

// Its first element is element `first` of the n at p, which may be null; those of a whole tile all
// exist, at addresses of vectors.
template <class T>
__device__ Tile<T> load_tile(const T* p, std::int64_t first, std::int64_t n, bool whole) {
  Tile<T> to{};
  if (!p) return to;
  TFM_UNROLL
  for (int k = 0; k < to.kVectors; ++k) {
    const std::int64_t at = first + k * kThreads * kVector<T>;
    if (whole) {
      to.at[k] = cuda::load<Vector<T>>(p + at);
    } else {
      TFM_UNROLL
      for (int i = 0; i < kVector<T>; ++i)
        if (at + i < n) to.at[k].at[i] = p[at + i];
    }
  }
  return to;
}
template <class P, class T>
__device__ void store_tile(P* p, std::int64_t first, std::int64_t n, bool whole,
                           const Tile<T>& from) {
  if (!p) return;
  TFM_UNROLL
  for (int k = 0; k < from.kVectors; ++k) {
    const std::int64_t at = first + k * kThreads * kVector<T>;
    cuda::Pack<P, kVector<T>> some;
    TFM_UNROLL
    for (int i = 0; i < kVector<T>; ++i) some.at[i] = cuda::narrow<P>(from.at[k].at[i]);
    if (whole) {
      cuda::store(p + at, some);
    } else {
      TFM_UNROLL
      for (int i = 0; i < kVector<T>; ++i)
        if (at + i < n) p[at + i] = some.at[i];
    }
  }
}

template <class T, class... Q>
__device__ bool vectors_fit(const Q*... p) {
  return ((reinterpret_cast<std::uintptr_t>(p) % (kVector<T> * sizeof(Q))) | ...) == 0;
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
  const bool whole =
      r.n - begin >= kTile && vectors_fit<T>(r.param, r.grad, r.m, r.v, r.average, r.rounded);
  auto p = load_tile(r.param, first, r.n, whole), m = load_tile(r.m, first, r.n, whole),
       v = load_tile(r.v, first, r.n, whole);
  const auto g = load_tile(r.grad, first, r.n, whole);
  const auto step = r.decays ? steps->decaying : steps->plain;
  TFM_UNROLL
  for (int k = 0; k < g.kVectors; ++k) TFM_UNROLL
  for (int i = 0; i < kVector<T>; ++i)
    step(p.at[k].at[i], g.at[k].at[i], m.at[k].at[i], v.at[k].at[i]);
  store_tile(r.param, first, r.n, whole, p);
  store_tile(r.m, first, r.n, whole, m);
  store_tile(r.v, first, r.n, whole, v);
  store_tile(r.rounded, first, r.n, whole, p);
  if (!r.average) return;
  auto average = load_tile(r.average, first, r.n, whole);
  TFM_UNROLL
  for (int k = 0; k < g.kVectors; ++k) TFM_UNROLL
  for (int i = 0; i < kVector<T>; ++i)
    average.at[k].at[i] += (p.at[k].at[i] - average.at[k].at[i]) * step.rate;
  store_tile(r.average, first, r.n, whole, average);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    square_sum_kernel(const T* x, std::int64_t n, const StepNumbers* numbers, TermSum* sums) {
  const double scale = 1 / numbers->loss_scale;
  const TermSum sum = over_block(sum_of_spans(x, n, scale * scale, blockIdx.x, gridDim.x));
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
#define TFM_INSTANTIATE(T, P) TFM_UPDATE_RULES(TFM_INSTANTIATE_RULE, T, P)
TFM_UPDATES(TFM_INSTANTIATE)
template void square_sum(cuda::Stream&, const SquareSumArgs<float>&);
template void square_sum(cuda::Stream&, const SquareSumArgs<double>&);

}  // namespace tfm::kernels
