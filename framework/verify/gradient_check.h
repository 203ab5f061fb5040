#pragma once
// The gradients of a step beside those of the reference.
#include "verify/rank_slices.h"
#include "verify/reference_step.h"

namespace tfm::verify {

// Of one step: its loss and gradients by the reference, and how far these are off where every
// result is rounded.
class GradientCheck {
 public:
  GradientCheck(ReferenceStep& reference, const RankSlices& slices, std::int64_t step,
                double loss_scale);
  // `run`: the gradient of this rank's slice.
  Deviation of(std::size_t slice, const std::vector<double>& run) const;

  double loss = 0, norm = 0;              // exact
  double plain_loss = 0, plain_norm = 0;  // what the plain computation is off

 private:
  double norm_of(const double* gradients) const;
  std::int64_t offset_of(std::size_t slice) const;  // of its whole part
  // Squares of the difference of a slice's whole part from the exact one, and of the elements of
  // it that this rank owns.
  std::pair<double, double> difference(std::size_t slice) const;

  const ReferenceStep& reference_;
  const RankSlices& slices_;
  double scale_;
  std::vector<double> exact_;  // flat, times the loss scale
  std::vector<PartNorms> norms_;
};

}  // namespace tfm::verify
