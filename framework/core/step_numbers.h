#pragma once
// Inputs and results of a training step. Kernels read and write them in their device's memory, so
// that recorded launches can be replayed for every step and the host need not wait between steps.
#include <array>
#include <cstdint>

namespace tfm {

inline constexpr std::size_t kMostObjectives = 8;  // most terms of a loss

struct UpdateNumbers {
  double lr = 0;
  double correction1 = 1, correction2 = 1;  // meaning depends on the rule; Adam: 1 - beta^update
  double keep = 0;                          // decay of the averaged weights
};

struct StepNumbers {
  // Index of the micro-batch's first sequence in the global batch.
  std::int64_t first_sequence = 0;
  // For each objective: loss scale / number of its labels in the global batch.
  std::array<double, kMostObjectives> gradient_scale = [] {
    std::array<double, kMostObjectives> ones{};
    ones.fill(1);
    return ones;
  }();
  double loss_scale = 1;   // a power of two
  std::uint32_t step = 0;  // optimizer step, counted from 1
  // 1: the step was launched before it was known whether the update of the previous step is
  // applied. If that one is not applied, neither is this one.
  std::uint32_t assumes_update = 0;
  UpdateNumbers update;
};

// Sum of the squares of a gradient after division by the loss scale. The fields of several ranks
// can be added in any order: all but `plain` are integers far below 2^53.
struct SquareSum {
  double limb[5] = {0, 0, 0, 0, 0};  // the sum times 2^88 in 32-bit limbs, least significant first
  // Number of terms that are not finite or exceed the limbs. If there are any, `plain` is used.
  double too_large = 0;
  double bad_losses = 0;  // number of losses that are not finite, and of ranks without room
  double plain = 0;       // the same sum in float64
};

struct StepOutcome {
  // Loss of each objective, summed over this rank's labels.
  std::array<double, kMostObjectives> loss{};
  // The most of the micro-batches' rows of experts for which there was no room, as a multiple of
  // those of an even load. If any rank has some, the update is not applied.
  double excess = 0;
  SquareSum squares;
  double norm = 0;             // of the whole gradient, before clipping
  double gradient_factor = 0;  // multiplies the gradients in the update: clip factor / loss scale
  // 1: the update is applied. 0: weights and optimizer state stay as they are, because a loss or
  // the norm is not finite, rows of experts had no room, or an assumed previous update was not
  // applied.
  std::int64_t applied = 0;
};

}  // namespace tfm
