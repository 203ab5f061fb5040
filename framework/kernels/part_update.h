#pragma once
// Kernels of update rules that work on whole parts of parameters (framework/optim/rules/). If
// outcome->applied is 0, they change nothing.
#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "core/step_numbers.h"
#include "device/memory.h"
#include "kernels/optimizer.h"

namespace tfm::kernels {

// Contiguous elements of one part.
template <class T, class P = T>
struct PartElements {
  std::int64_t n = 0;
  std::int64_t begin = 0;           // first element in the flat buffers
  std::int64_t rows = 0, cols = 0;  // of the whole part; a vector has one column
  int part = 0;
  bool decays = true;  // weight decay applies
  Weights<P> param{};
  T* grad = nullptr;     // or the direction that replaces it
  T* m = nullptr;        // first state of the rule
  T* v = nullptr;        // second state
  T* average = nullptr;  // as in UpdateRange
};

// Sums of squares of a part, over all its elements once the sums of the ranks are added.
struct PartSquares {
  SquareSum weights, direction;
};

// grad = Adam's direction, plus rule.decay * param if weight decay applies.
template <class T, class P>
struct AdamDirectionArgs {
  std::span<const PartElements<T, P>> ranges;
  AdamRule rule;
  const StepNumbers* numbers = nullptr;
  const StepOutcome* outcome = nullptr;
};

// sums[part] += sums of squares of param and grad. As in square_sum(), the sums of blocks of 64
// elements of the flat buffers are added exactly, so that totals do not depend on how ranks share
// the blocks. Ranges of a part must be consecutive.
template <class T, class P>
struct PartSquaresArgs {
  std::span<const PartElements<T, P>> ranges;
  const StepOutcome* outcome = nullptr;
  PartSquares* sums = nullptr;
};

// Rules for the step size of a part along its direction:

// LAMB: lr * |param| / |direction|; lr if weight decay does not apply or a norm is 0.
struct TrustRatio {};
// Adafactor: min(lr, correction2) * max(eps2, rms(param)) / max(1, rms(grad) / clip).
struct ClippedRms {
  double eps2 = 0, clip = 1;
  double decay = 0;  // decoupled weight decay by lr * decay
};
// Muon: rate * lr * f, where f is sqrt(max(1, rows / cols)) or, with match_rms,
// 0.2 sqrt(max(rows, cols)).
struct MatrixRate {
  double rate = 1;   // relative to lr
  double decay = 0;  // decoupled weight decay by rate * lr * decay
  bool match_rms = false;
};
template <class Rule, class T, class P>
struct DescendArgs {  // param = shrink * param - step * grad; also updates the average
  std::span<const PartElements<T, P>> ranges;
  Rule rule;
  const StepNumbers* numbers = nullptr;
  const StepOutcome* outcome = nullptr;
  const PartSquares* sums = nullptr;  // of all parts, if the rule reads them
};

// Most thread blocks for a range of add_squares(), four for each of 132 multiprocessors, and most
// ranges of a launch.
inline constexpr int kMostSquareBlocks = 4 * 132, kRangesOfLaunch = 32;
struct TermSum {  // sum of a thread block, see cuda/exact_squares.h
  std::int64_t limb[4], too_large;
  double plain;
};
// Bytes of scratch memory that the functions below take on a GPU.
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

// Expands f(rule, T, P) for the rules of descend(), whose equations are in part_update.inl.
#define TFM_DESCENTS(f, T, P) f(TrustRatio, T, P) f(ClippedRms, T, P) f(MatrixRate, T, P)

}  // namespace tfm::kernels
