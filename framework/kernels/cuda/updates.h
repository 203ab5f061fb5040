#pragma once
// Shared by kernels of updates: many ranges of elements in few launches, and constants computed
// once from a step's numbers.
#include <span>

#include "kernels/cuda/weights.h"
#include "kernels/part_update.h"

namespace tfm::kernels {
namespace {

__device__ inline float sqrt(float x) { return ::sqrtf(x); }
__device__ inline double sqrt(double x) { return ::sqrt(x); }

}  // namespace

// Ranges of one launch, passed as a kernel argument.
template <class R>
struct Ranges {
  R at[kRangesOfLaunch];
  unsigned first_block[kRangesOfLaunch + 1];  // by range; then the number of blocks
  int count;

  __device__ int of_block(unsigned block) const {
    int which = 0;
    TFM_UNROLL
    for (int half = kRangesOfLaunch / 2; half > 0; half /= 2)
      if (which + half < count && first_block[which + half] <= block) which += half;
    return which;
  }
  unsigned blocks() const { return first_block[count]; }
};

// Calls f(Ranges<R>) for groups of ranges until all are done. blocks_of(range) is its number of
// thread blocks.
template <class R, class BlocksOf, class F>
void each_launch(std::span<const R> ranges, BlocksOf&& blocks_of, F&& f) {
  while (!ranges.empty()) {
    Ranges<R> some{};
    for (; !ranges.empty() && some.count < kRangesOfLaunch; ranges = ranges.subspan(1)) {
      some.at[some.count] = ranges[0];
      some.first_block[some.count + 1] =
          some.first_block[some.count] + static_cast<unsigned>(blocks_of(ranges[0]));
      ++some.count;
    }
    if (some.blocks() > 0) f(some);
  }
}

template <class V>
__device__ const V& value_of(const V& v) {
  return v;
}
template <class V>
__device__ const V& value_of(const V* p) {
  return *p;
}
template <class Math, class... A>
__global__ void prepare_kernel(Math* to, A... from) {
  *to = Math(value_of(from)...);
}

// Constants of an update, constructed once on the device as Math(from...), where pointers are
// replaced by the objects they point to.
template <class Math>
class Prepared {
 public:
  template <class... A>
  explicit Prepared(cuda::Stream& stream, A... from) : memory_(stream, 1) {
    Math* const to = memory_;
    cuda::launch(stream, prepare_kernel<Math, A...>, 1, 1, 0, to, from...);
  }
  operator const Math*() const { return memory_; }

 private:
  cuda::Scratch<Math> memory_;
};

// Calls f(range, element, part, math) for all packs of the ranges. PerRange: math[i] belongs to
// range i. Does nothing if outcome->applied is 0.
template <bool PerRange, class R, class Math, class F>
__global__ void __launch_bounds__(kThreads)
    ranges_kernel(const __grid_constant__ Ranges<R> ranges, const StepOutcome* outcome,
                  const Math* math, F f) {
  if (outcome->applied == 0) return;
  const int which = ranges.of_block(blockIdx.x);
  const R& r = ranges.at[which];
  const std::int64_t at =
      (std::int64_t{blockIdx.x - ranges.first_block[which]} * kThreads + threadIdx.x) * kPack;
  if (at < r.n) f(r, at, part_of(at, r.n), math[PerRange ? which : 0]);
}
template <class R>
std::int64_t pack_blocks(const R& r) {
  return ceil_div(r.n, std::int64_t{kThreads} * kPack);
}
template <class R, class Math, class F>
void over_ranges(cuda::Stream& stream, std::span<const R> ranges, const StepOutcome* outcome,
                 const Math* math, F f) {
  each_launch(ranges, pack_blocks<R>, [&](const Ranges<R>& some) {
    cuda::launch(stream, ranges_kernel<false, R, Math, F>, some.blocks(), kThreads, 0, some,
                 outcome, math, f);
  });
}

}  // namespace tfm::kernels
