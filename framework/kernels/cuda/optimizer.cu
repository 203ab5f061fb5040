// Parameter updates, and the exact sum of squares.
#include "kernels/optimizer.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/packs.h"

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

template <class T, class P> struct Ranges {
  UpdateRange<T, P> at[kRanges];
  std::int64_t first_pack[kRanges + 1];  // of each range; one more than the last
  int count;
};

template <class Rule, class T> __global__ void steps_kernel(Rule rule, const StepNumbers* numbers, const StepOutcome* outcome, Steps<Rule, T>* steps) {
  *steps = Steps<Rule, T>(rule, *numbers, *outcome);
}

template <class Rule, class T, class P>
__global__ void __launch_bounds__(kThreads) update_kernel(const __grid_constant__ Ranges<T, P> ranges, const Steps<Rule, T>* steps) {
  const std::int64_t pack = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (pack >= ranges.first_pack[ranges.count]) return;
  int which = 0;
  TFM_UNROLL
  for (int half = kRanges / 2; half > 0; half /= 2)
    if (which + half < ranges.count && ranges.first_pack[which + half] <= pack) which += half;
  const UpdateRange<T, P>& r = ranges.at[which];
  const std::int64_t at = (pack - ranges.first_pack[which]) * kPack;
  const Part part = part_of(at, r.n);
  const auto p = load_pack(r.param + at, part), g = load_pack(r.grad + at, part), m = r.m ? load_pack(r.m + at, part) : Eight<T>{},
             v = r.v ? load_pack(r.v + at, part) : Eight<T>{};
  if (!steps->applied) return;
  const auto step = r.decays ? steps->decaying : steps->plain;
  T to[kPack], first[kPack], second[kPack];
  TFM_UNROLL
  for (int i = 0; i < kPack; ++i) {
    to[i] = p[i], first[i] = m[i], second[i] = v[i];
    step(to[i], g[i], first[i], second[i]);
  }
  store_pack(r.param + at, part, to);
  if (r.m) store_pack(r.m + at, part, first);
  if (r.v) store_pack(r.v + at, part, second);
  if (r.rounded) store_pack(r.rounded + at, part, to);
  if (!r.average) return;
  const auto old = load_pack(r.average + at, part);
  TFM_UNROLL
  for (int i = 0; i < kPack; ++i) first[i] = old[i] + (to[i] - old[i]) * step.rate;
  store_pack(r.average + at, part, first);
}

constexpr int kTerm = 64;                              // elements of one exact term, which two threads add up
constexpr int kSpan = kThreads / 2 * kTerm;            // elements of a block of threads at a time
constexpr std::int64_t kMostBlocks = 1024;

// Terms truncated to multiples of 2^-88, in pieces of 32 bits, least first: 2^31 terms fit. The order of adding does not matter.
struct TermSum {
  std::int64_t limb[4], too_large;
  double plain;
};

// The elements 8 i + j, 0 <= j < 4, of the n at x are added to lane[j], for all i in order.
template <class T> __device__ void add_squares(const T* x, std::int64_t n, bool aligned, double (&lane)[4]) {
  auto add = [&](int j, T v) { lane[j] = ::fma(static_cast<double>(v), static_cast<double>(v), lane[j]); };
  TFM_UNROLL
  for (int i = 0; i < kTerm; i += 8)
    if (aligned && i + 4 <= n) {
      TFM_UNROLL
      for (int j = 0; j < 4; j += kVector<T>) {
        const auto some = cuda::load<cuda::Pack<T>>(x + i + j);
        TFM_UNROLL
        for (int k = 0; k < kVector<T>; ++k) add(j + k, some.at[k]);
      }
    } else {
      TFM_UNROLL
      for (int j = 0; j < 4; ++j)
        if (i + j < n) add(j, x[i + j]);
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

// The order in which the 64 squares of a term are added, and with it the term's bits, is that of kernels/cpu/optimizer.cpp (for
// doubles, where that multiplies and adds in one rounding).
template <class T> __global__ void __launch_bounds__(kThreads) square_sum_kernel(const T* x, std::int64_t n, const StepNumbers* numbers, TermSum* sums) {
  const double scale = 1 / numbers->loss_scale, factor = scale * scale;
  const int half = static_cast<int>(threadIdx.x) % 2;
  const bool aligned = misalignment(x) == 0;
  TermSum sum{};
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kSpan; first < n; first += static_cast<std::int64_t>(gridDim.x) * kSpan) {
    const std::int64_t at = first + static_cast<int>(threadIdx.x) / 2 * kTerm + half * 4;
    double lane[4] = {0, 0, 0, 0};
    if (at < n) add_squares(x + at, n - at, aligned, lane);
    TFM_UNROLL
    for (double& l : lane) l += cuda::shuffle_xor(l, 1);
    if (half == 0 && at < n) add_term(((lane[0] + lane[2]) + (lane[1] + lane[3])) * factor, sum);
  }
  double plain[1] = {sum.plain};
  std::int64_t whole[5] = {sum.limb[0], sum.limb[1], sum.limb[2], sum.limb[3], sum.too_large};
  auto* shared = cuda::shared_memory<std::int64_t>();
  over_block(whole, shared, Sum{});
  over_block(plain, reinterpret_cast<double*>(shared + 5 * (kThreads / kWarp)), Sum{});
  if (threadIdx.x == 0) sums[blockIdx.x] = {{whole[0], whole[1], whole[2], whole[3]}, whole[4], plain[0]};
}

// One block; `count` sums.
__global__ void __launch_bounds__(kThreads) fold_kernel(const TermSum* sums, std::int64_t count, StepOutcome* outcome) {
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
  for (int k = 0; k < 2; ++k) all.bad_losses += finite(outcome->loss[k]) ? 0 : 1;
  outcome->squares = all;
}

__global__ void clip_kernel(ClipArgs a) { judge(a); }

}  // namespace

template <class Rule, class T, class P> void update(cuda::Stream& stream, const UpdateArgs<Rule, T, P>& a) {
  cuda::Scratch<Steps<Rule, T>> steps(stream, 1);
  cuda::launch(stream, steps_kernel<Rule, T>, 1, 1, 0, a.rule, a.numbers, a.outcome, steps);
  for (std::span<const UpdateRange<T, P>> ranges = a.ranges; !ranges.empty();) {
    Ranges<T, P> some{};
    for (; !ranges.empty() && some.count < kRanges; ranges = ranges.subspan(1)) {
      some.at[some.count] = ranges[0];
      some.first_pack[some.count + 1] = some.first_pack[some.count] + ceil_div(ranges[0].n, kPack);
      ++some.count;
    }
    if (const std::int64_t packs = some.first_pack[some.count])
      cuda::launch(stream, update_kernel<Rule, T, P>, static_cast<unsigned>(ceil_div(packs, kThreads)), kThreads, 0, some, steps);
  }
}

template <class T> void square_sum(cuda::Stream& stream, const SquareSumArgs<T>& a) {
  constexpr std::size_t kShared = 6 * (kThreads / kWarp) * sizeof(double);
  const auto blocks_of = [](const Range& r) { return std::min(kMostBlocks, ceil_div(r.end - r.begin, kSpan)); };
  std::int64_t blocks = 0;
  for (const Range& r : a.ranges) blocks += blocks_of(r);
  cuda::Scratch<TermSum> sums(stream, blocks);
  TermSum* next = sums;
  for (const Range& r : a.ranges)
    if (const std::int64_t n = blocks_of(r)) {
      cuda::launch(stream, square_sum_kernel<T>, static_cast<unsigned>(n), kThreads, kShared, a.x + r.begin, r.end - r.begin, a.numbers, next);
      next += n;
    }
  cuda::launch(stream, fold_kernel, 1, kThreads, kShared, sums, blocks, a.outcome);
}

void clip(cuda::Stream& stream, const ClipArgs& a) { cuda::launch(stream, clip_kernel, 1, 1, 0, a); }

#define TFM_INSTANTIATE(T, P)                                             \
  template void update(cuda::Stream&, const UpdateArgs<AdamRule, T, P>&); \
  template void update(cuda::Stream&, const UpdateArgs<SgdRule, T, P>&);
TFM_UPDATES(TFM_INSTANTIATE)
template void square_sum(cuda::Stream&, const SquareSumArgs<float>&);
template void square_sum(cuda::Stream&, const SquareSumArgs<double>&);

}  // namespace tfm::kernels
