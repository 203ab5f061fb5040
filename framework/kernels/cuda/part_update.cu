// Updates that look at whole parts: LAMB's direction, sums of squares of parts, and the descent.
#include <vector>

#include "kernels/cuda/exact_squares.h"
#include "kernels/part_update.h"

namespace tfm::kernels {
namespace {

struct Direct {
  template <class T, class P>
  __device__ void operator()(const PartElements<T, P>& r, std::int64_t at, Part part,
                             const AdamDirection<T>& direction) const {
    const auto p = load_pack(r.param + at, part), g = load_pack(r.grad + at, part),
               first = load_pack(r.m + at, part), second = load_pack(r.v + at, part);
    const T couple = r.decays ? direction.decay : T{0};
    T grad[kPack], m[kPack], v[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) {
      grad[i] = g[i], m[i] = first[i], v[i] = second[i];
      direction(p[i], grad[i], m[i], v[i], couple);
    }
    store_pack(r.m + at, part, m);
    store_pack(r.v + at, part, v);
    store_pack(r.grad + at, part, grad);
  }
};

// X: a pointer, or weights.
template <class X>
struct SquareRange {
  X x;
  std::int64_t n;
  SquareSum* to;
};

template <class T, class X>
__global__ void __launch_bounds__(kThreads)
    part_squares_kernel(const __grid_constant__ Ranges<SquareRange<X>> ranges,
                        const StepOutcome* outcome, TermSum* sums) {
  if (outcome->applied == 0) return;
  const int which = ranges.of_block(blockIdx.x);
  const unsigned begin = ranges.first_block[which], end = ranges.first_block[which + 1];
  const SquareRange<X>& r = ranges.at[which];
  const TermSum sum = over_block(sum_of_spans<T>(r.x, r.n, 1, blockIdx.x - begin, end - begin));
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// A block for each range; the first one of those that go to the same sum adds up all of them.
template <class X>
__global__ void __launch_bounds__(kThreads)
    fold_squares_kernel(const __grid_constant__ Ranges<SquareRange<X>> ranges,
                        const StepOutcome* outcome, const TermSum* sums) {
  if (outcome->applied == 0) return;
  const int first = static_cast<int>(blockIdx.x);
  SquareSum* const to = ranges.at[first].to;
  if (first > 0 && ranges.at[first - 1].to == to) return;
  int last = first + 1;
  while (last < ranges.count && ranges.at[last].to == to) ++last;
  const unsigned begin = ranges.first_block[first];
  const TermSum sum = over_block(sum_of_blocks(sums + begin, ranges.first_block[last] - begin));
  if (threadIdx.x > 0) return;
  const SquareSum some = square_sum_of(sum);
  for (int k = 0; k < 5; ++k) to->limb[k] += some.limb[k];
  to->too_large += some.too_large;
  to->plain += some.plain;
}

// What is read of weights.
template <class X>
X source_of(X x) {
  return x;
}
float* source_of(MasterWeights w) { return w.master; }

// The squares of one member of the ranges. Terms end where those of the flat buffers do.
template <class T, class P, class Member>
void add_squares_of(cuda::Stream& stream, const PartSquaresArgs<T, P>& a,
                    Member PartElements<T, P>::*x, SquareSum PartSquares::*to) {
  using X = decltype(source_of(Member{}));
  thread_local std::vector<SquareRange<X>> all;  // keeps its memory
  all.clear();
  for (const PartElements<T, P>& r : a.ranges) {
    const std::int64_t head = std::min(r.n, round_up(r.begin, kTerm) - r.begin);
    for (const auto& [first, n] : {std::pair{std::int64_t{0}, head}, {head, r.n - head}})
      if (n > 0) all.push_back({source_of(r.*x) + first, n, &(a.sums[r.part].*to)});
  }
  each_launch(
      std::span<const SquareRange<X>>(all),
      [](const SquareRange<X>& r) { return square_blocks(r.n); },
      [&](const Ranges<SquareRange<X>>& some) {
        const cuda::Scratch<TermSum> sums(stream, some.blocks());
        cuda::launch(stream, part_squares_kernel<T, X>, some.blocks(), kThreads, kSpan * sizeof(T),
                     some, a.outcome, sums);
        cuda::launch(stream, fold_squares_kernel<X>, static_cast<unsigned>(some.count), kThreads,
                     kTermSumShared, some, a.outcome, sums);
      });
}

template <class Rule, class T, class P>
__global__ void descents_kernel(const __grid_constant__ Ranges<PartElements<T, P>> ranges,
                                Rule rule, const StepNumbers* numbers, const PartSquares* sums,
                                Descent<T>* to) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < ranges.count) to[i] = Descent<T>::of(rule, ranges.at[i], *numbers, sums);
}

struct Descend {
  template <class T, class P>
  __device__ void operator()(const PartElements<T, P>& r, std::int64_t at, Part part,
                             const Descent<T>& descent) const {
    const auto before = load_pack(r.param + at, part), direction = load_pack(r.grad + at, part);
    T p[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) p[i] = descent(before[i], direction[i]);
    store_pack(r.param + at, part, p);
    if (!r.average) return;
    const auto old = load_pack(r.average + at, part);
    T average[kPack];
    TFM_UNROLL
    for (int i = 0; i < kPack; ++i) average[i] = old[i] + (p[i] - old[i]) * descent.rate;
    store_pack(r.average + at, part, average);
  }
};

}  // namespace

template <class T, class P>
void adam_direction(cuda::Stream& stream, const AdamDirectionArgs<T, P>& a) {
  const Prepared<AdamDirection<T>> direction(stream, a.rule, a.numbers, a.outcome);
  over_ranges<PartElements<T, P>, AdamDirection<T>>(stream, a.ranges, a.outcome, direction,
                                                    Direct{});
}

template <class T, class P>
void add_squares(cuda::Stream& stream, const PartSquaresArgs<T, P>& a) {
  add_squares_of(stream, a, &PartElements<T, P>::param, &PartSquares::weights);
  add_squares_of(stream, a, &PartElements<T, P>::grad, &PartSquares::direction);
}

template <class Rule, class T, class P>
void descend(cuda::Stream& stream, const DescendArgs<Rule, T, P>& a) {
  const cuda::Scratch<Descent<T>> descents(stream, kRangesOfLaunch);
  each_launch(a.ranges, pack_blocks<PartElements<T, P>>,
              [&](const Ranges<PartElements<T, P>>& some) {
                cuda::launch(stream, descents_kernel<Rule, T, P>, 1, kRangesOfLaunch, 0, some,
                             a.rule, a.numbers, a.sums, descents);
                cuda::launch(stream, ranges_kernel<true, PartElements<T, P>, Descent<T>, Descend>,
                             some.blocks(), kThreads, 0, some, a.outcome, descents, Descend{});
              });
}

#define TFM_INSTANTIATE_RULE(Rule, T, P) \
  template void descend(cuda::Stream&, const DescendArgs<Rule, T, P>&);
#define TFM_INSTANTIATE(T, P)                                                  \
  template void adam_direction(cuda::Stream&, const AdamDirectionArgs<T, P>&); \
  template void add_squares(cuda::Stream&, const PartSquaresArgs<T, P>&);      \
  TFM_DESCENTS(TFM_INSTANTIATE_RULE, T, P)
TFM_UPDATES(TFM_INSTANTIATE)

}  // namespace tfm::kernels
