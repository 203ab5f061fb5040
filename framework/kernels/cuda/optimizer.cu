// Parameter updates, and the exact sum of squares.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/packs.h"
#include "kernels/optimizer.h"

namespace tfm::kernels {
namespace {

__device__ inline float sqrt(float x) { return ::sqrtf(x); }
__device__ inline double sqrt(double x) { return ::sqrt(x); }

}  // namespace
}  // namespace tfm::kernels

#include "kernels/optimizer.inl"

namespace tfm::kernels {
namespace {

constexpr int kRanges = 32;  // of one launch, so that they pass as arguments of a kernel

template <class T, class P>
struct Ranges {
  UpdateRange<T, P> at[kRanges];
  unsigned first_block[kRanges + 1];  // of each range; one more than the last
  int count;
};

template <class Rule, class T>
__global__ void steps_kernel(Rule rule, const StepNumbers* numbers, const StepOutcome* outcome,
                             Steps<Rule, T>* steps) {
  *steps = Steps<Rule, T>(rule, *numbers, *outcome);
}

template <class T>
using Vector = cuda::Pack<T>;
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
    update_kernel(const __grid_constant__ Ranges<T, P> ranges, const Steps<Rule, T>* steps) {
  int which = 0;
  TFM_UNROLL
  for (int half = kRanges / 2; half > 0; half /= 2)
    if (which + half < ranges.count && ranges.first_block[which + half] <= blockIdx.x)
      which += half;
  if (!steps->applied) return;
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

constexpr int kTerm = 64;                    // elements of one exact term, which two threads add up
constexpr int kSpan = kThreads / 2 * kTerm;  // elements of a block of threads at a time
constexpr std::int64_t kMostBlocks =
    4 * 132;  // that a GPU of 132 multiprocessors runs at once, of floats

// Terms truncated to multiples of 2^-88, in pieces of 32 bits, least first: 2^31 terms fit. The
// order of adding does not matter.
struct TermSum {
  std::int64_t limb[4], too_large;
  double plain;
};

// A span in shared memory: in every term, rows of eight change places, so that neighboring terms
// are read from different banks.
__device__ inline unsigned row_of(unsigned term, unsigned row) { return row ^ term % 4; }

// Starts to copy the n elements at x, N at a time; where N is 1, zeros for those that do not exist.
template <int N, class T>
__device__ void fetch_span(T* span, const T* x, std::int64_t n) {
  const unsigned first = threadIdx.x * N, term = first / kTerm;
  static_assert(kThreads * N % (4 * kTerm) == 0);
  span += term * kTerm + row_of(term, first % kTerm / 8) * 8 + first % 8;
  TFM_UNROLL
  for (int i = 0; i < kSpan; i += kThreads * N) {
    const int used = N > 1 || first + i < n ? N : 0;
    cuda::copy_async<N * sizeof(T)>(span + i, x + first + i, used * static_cast<int>(sizeof(T)));
  }
  cuda::copy_async_commit();
}

// Adds the elements 8 i + 4 half + j, 0 <= j < 4, of a term to lane[j], for all i in order.
template <class T>
__device__ void add_squares(const T* span, unsigned term, unsigned half, double (&lane)[4]) {
  TFM_UNROLL
  for (unsigned row = 0; row < kTerm / 8; ++row) TFM_UNROLL
  for (int j = 0; j < 4; j += kVector<T>) {
    const auto some =
        cuda::load<Vector<T>>(span + term * kTerm + half * 4 + row_of(term, row) * 8 + j);
    TFM_UNROLL
    for (int k = 0; k < kVector<T>; ++k) {
      const auto x = static_cast<double>(some.at[k]);
      lane[j + k] = ::fma(x, x, lane[j + k]);
    }
  }
}

__device__ inline void add_term(double s, TermSum& sum) {
  sum.plain += s;
  if (!(s < 0x1p36)) {
    ++sum.too_large;
    return;
  }
  const double scaled = s * 0x1p24;
  const auto high = static_cast<std::int64_t>(scaled);
  const auto low = static_cast<std::uint64_t>((scaled - static_cast<double>(high)) * 0x1p64);
  sum.limb[0] += static_cast<std::int64_t>(low & 0xFFFFFFFFu);
  sum.limb[1] += static_cast<std::int64_t>(low >> 32);
  sum.limb[2] += high & 0xFFFFFFFF;
  sum.limb[3] += high >> 32;
}

// The order in which the 64 squares of a term are added, and with it the term's bits, is that of
// kernels/cpu/optimizer.cpp (for doubles, where that multiplies and adds in one rounding).
template <class T>
__global__ void __launch_bounds__(kThreads)
    square_sum_kernel(const T* x, std::int64_t n, const StepNumbers* numbers, TermSum* sums) {
  const double scale = 1 / numbers->loss_scale, factor = scale * scale;
  const unsigned half = threadIdx.x % 2;
  const bool aligned = misalignment(x) == 0;
  T* span = cuda::shared_memory<T>();
  TermSum sum{};
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kSpan; first < n;
       first += static_cast<std::int64_t>(gridDim.x) * kSpan) {
    if (aligned && n - first >= kSpan)
      fetch_span<kVector<T>>(span, x + first, n - first);
    else
      fetch_span<1>(span, x + first, n - first);
    cuda::copy_async_wait<0>();
    cuda::block_barrier();
    double lane[4] = {0, 0, 0, 0};
    add_squares(span, threadIdx.x / 2, half, lane);
    TFM_UNROLL
    for (double& l : lane) l += cuda::shuffle_xor(l, 1);
    if (half == 0) add_term(((lane[0] + lane[2]) + (lane[1] + lane[3])) * factor, sum);
    cuda::block_barrier();
  }
  double plain[1] = {sum.plain};
  std::int64_t whole[5] = {sum.limb[0], sum.limb[1], sum.limb[2], sum.limb[3], sum.too_large};
  auto* shared = cuda::shared_memory<std::int64_t>();
  over_block(whole, shared, Sum{});
  over_block(plain, reinterpret_cast<double*>(shared + 5 * (kThreads / kWarp)), Sum{});
  if (threadIdx.x == 0)
    sums[blockIdx.x] = {{whole[0], whole[1], whole[2], whole[3]}, whole[4], plain[0]};
}

// One block; `count` sums.
__global__ void __launch_bounds__(kThreads)
    fold_kernel(const TermSum* sums, std::int64_t count, StepOutcome* outcome) {
  std::int64_t whole[5] = {0, 0, 0, 0, 0};
  double plain[1] = {0};
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) {
    const TermSum& part = sums[i];
    TFM_UNROLL
    for (int k = 0; k < 4; ++k) whole[k] += part.limb[k];
    whole[4] += part.too_large;
    plain[0] += part.plain;
  }
  auto* shared = cuda::shared_memory<std::int64_t>();
  over_block(whole, shared, Sum{});
  over_block(plain, reinterpret_cast<double*>(shared + 5 * (kThreads / kWarp)), Sum{});
  if (threadIdx.x > 0) return;
  std::int64_t limb[4] = {whole[0], whole[1], whole[2], whole[3]};
  carry(limb);
  SquareSum all{};
  put(limb, all);
  all.too_large = static_cast<double>(whole[4]);
  all.plain = plain[0];
  for (std::size_t k = 0; k < kMostObjectives; ++k)
    all.bad_losses += finite(outcome->loss[k]) ? 0 : 1;
  outcome->squares = all;
}

__global__ void clip_kernel(ClipArgs a) { decide_update(a); }

}  // namespace

template <class Rule, class T, class P>
void update(cuda::Stream& stream, const UpdateArgs<Rule, T, P>& a) {
  cuda::Scratch<Steps<Rule, T>> steps(stream, 1);
  cuda::launch(stream, steps_kernel<Rule, T>, 1, 1, 0, a.rule, a.numbers, a.outcome, steps);
  for (std::span<const UpdateRange<T, P>> ranges = a.ranges; !ranges.empty();) {
    Ranges<T, P> some{};
    for (; !ranges.empty() && some.count < kRanges; ranges = ranges.subspan(1)) {
      some.at[some.count] = ranges[0];
      some.first_block[some.count + 1] =
          some.first_block[some.count] + static_cast<unsigned>(ceil_div(ranges[0].n, kTile));
      ++some.count;
    }
    if (const unsigned blocks = some.first_block[some.count])
      cuda::launch(stream, update_kernel<Rule, T, P>, blocks, kThreads, 0, some, steps);
  }
}

template <class T>
void square_sum(cuda::Stream& stream, const SquareSumArgs<T>& a) {
  constexpr std::size_t kShared = 6 * (kThreads / kWarp) * sizeof(double);
  const auto blocks_of = [](const Range& r) {
    return std::min(kMostBlocks, ceil_div(r.end - r.begin, kSpan));
  };
  std::int64_t blocks = 0;
  for (const Range& r : a.ranges) blocks += blocks_of(r);
  cuda::Scratch<TermSum> sums(stream, blocks);
  TermSum* next = sums;
  for (const Range& r : a.ranges)
    if (const std::int64_t n = blocks_of(r)) {
      cuda::launch(stream, square_sum_kernel<T>, static_cast<unsigned>(n), kThreads,
                   kSpan * sizeof(T), a.x + r.begin, r.end - r.begin, a.numbers, next);
      next += n;
    }
  cuda::launch(stream, fold_kernel, 1, kThreads, kShared, sums, blocks, a.outcome);
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
