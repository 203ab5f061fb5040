#pragma once
// Inputs and results of a step that kernels read and write in the memory of their stream, so that
// launches recorded once serve every step and the host does not wait between them.
#include <array>
#include <cstdint>

namespace tfm {

inline constexpr std::size_t kMostObjectives = 8;  // terms of the loss of a step

struct UpdateNumbers {
  double lr = 0;
  double correction1 = 1, correction2 = 1;  // of the optimizer's rule; Adam's: 1 - beta^update
  double keep = 0;                          // decay of the averaged weights
};

struct StepNumbers {
  std::int64_t first_sequence =
      0;  // index of the micro-batch's first sequence within the global batch
  // Of each objective: loss scale / its labels in the global batch.
  std::array<double, kMostObjectives> gradient_scale = [] {
    std::array<double, kMostObjectives> ones{};
    ones.fill(1);
    return ones;
  }();
  double loss_scale = 1;   // a power of two
  std::uint32_t step = 0;  // of the optimizer, from 1
  // 1: these are of a step behind an update, launched before it was known whether there is one;
  // where there is none, this step has none, either.
  std::uint32_t assumes_update = 0;
  UpdateNumbers update;
};

// A sum of squares of a gradient that was divided by the loss scale. Ranks' sums add up, in any
// order: all but `plain` are whole numbers far below 2^53.
struct SquareSum {
  double limb[5] = {0, 0, 0, 0, 0};  // the sum times 2^88, 32 bits each, least first
  double too_large = 0;   // terms that are not finite or too large for the limbs; `plain` counts
                          // where there are any
  double bad_losses = 0;  // losses that are not finite
  double plain = 0;       // the same sum in float64
};

struct StepOutcome {
  // Of each objective, summed over this rank's labels.
  std::array<double, kMostObjectives> loss{};
  SquareSum squares;
  double norm = 0;  // of the gradient
  double gradient_factor =
      0;                     // what the update multiplies gradients with: clip factor / loss scale
  std::int64_t applied = 0;  // 1; 0: a loss or the norm is not finite, or the step assumed an
                             // update that there was not, and the update leaves everything as it is
};

}  // namespace tfm
