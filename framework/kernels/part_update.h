#pragma once
// Pieces of updates that look at whole parts of parameters (framework/optim/rules/). Where
// outcome->applied is 0, they change nothing.
#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "core/step_numbers.h"
#include "device/memory.h"
#include "kernels/optimizer.h"

namespace tfm::kernels {

// Elements of one part that lie together.
template <class T, class P = T>
struct PartElements {
  std::int64_t n = 0;
  std::int64_t begin = 0;           // of the first one, in the flat buffers
  std::int64_t rows = 0, cols = 0;  // of the whole part; a vector has one column
  int part = 0;
  bool decays = true;  // weight decay applies
  Weights<P> param{};
  T* grad = nullptr;     // or the direction that takes its place
  T* m = nullptr;        // first state of the rule
  T* v = nullptr;        // second state
  T* average = nullptr;  // as in UpdateRange
};

// Of a part, over all ranks once their sums are added up.
struct PartSquares {
  SquareSum weights, direction;
};

// grad = Adam's direction, plus rule.decay * param where that decays.
template <class T, class P>
struct AdamDirectionArgs {
  std::span<const PartElements<T, P>> ranges;
  AdamRule rule;
  const StepNumbers* numbers = nullptr;
  const StepOutcome* outcome = nullptr;
};

// sums[part] += the squares of param and grad: exact over blocks of 64 elements of the flat
// buffers, as square_sum() is, so that totals do not depend on how ranks share the blocks. Ranges
// of a part follow each other.
template <class T, class P>
struct PartSquaresArgs {
  std::span<const PartElements<T, P>> ranges;
  const StepOutcome* outcome = nullptr;
  PartSquares* sums = nullptr;
};

// What decides how far a part goes along its direction.
struct TrustRatio {};  // lr |param| / |direction|; lr without weight decay, or where a norm is 0
struct ClippedRms {    // min(lr, correction2) * max(eps2, rms(param)) / max(1, rms(grad) / clip)
  double eps2 = 0, clip = 1;
  double decay = 0;  // of the weights, decoupled: by lr * decay
};
struct MatrixRate {
  double rate = 1;         // to lr
  double decay = 0;        // by rate * lr * decay
  bool match_rms = false;  // rate * lr * 0.2 sqrt(max(rows, cols)), not * sqrt(max(1, rows / cols))
};
template <class Rule, class T, class P>
struct DescendArgs {  // param = shrink * param - step * grad; with it the average
  std::span<const PartElements<T, P>> ranges;
  Rule rule;
  const StepNumbers* numbers = nullptr;
  const StepOutcome* outcome = nullptr;
  const PartSquares* sums = nullptr;  // of all parts, where the rule reads them
};

// Blocks of a GPU that a range of add_squares() is shared out to at most: as many as one of 132
// multiprocessors runs at once. A launch takes so many ranges.
inline constexpr int kMostSquareBlocks = 4 * 132, kRangesOfLaunch = 32;
struct TermSum {  // of a block, see cuda/exact_squares.h
  std::int64_t limb[4], too_large;
  double plain;
};
// Bytes of scratch memory that the functions below take.
inline std::int64_t part_update_scratch() {
  return device::scratch_piece(kRangesOfLaunch * kMostSquareBlocks *
                               static_cast<std::int64_t>(sizeof(TermSum)));
}

template <class T, class P>
void adam_direction(cpu::Stream&, const AdamDirectionArgs<T, P>&);
template <class T, class P>
void add_squares(cpu::Stream&, const PartSquaresArgs<T, P>&);
template <class Rule, class T, class P>
void descend(cpu::Stream&, const DescendArgs<Rule, T, P>&);
template <class T, class P>
void adam_direction(cuda::Stream&, const AdamDirectionArgs<T, P>&);
template <class T, class P>
void add_squares(cuda::Stream&, const PartSquaresArgs<T, P>&);
template <class Rule, class T, class P>
void descend(cuda::Stream&, const DescendArgs<Rule, T, P>&);

// f(rule, T, P) for the rules of descend(), whose equations are in part_update.inl.
#define TFM_DESCENTS(f, T, P) f(TrustRatio, T, P) f(ClippedRms, T, P) f(MatrixRate, T, P)

}  // namespace tfm::kernels
