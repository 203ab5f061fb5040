#pragma once
// How far a run in its own precision may be from the reference (as_run.cpp). Bounds follow what
// rounding alone does to the same step, and scale with the share of a part that a rank has.
#include "config/config.h"
#include "train/verify.h"

namespace tfm::train {

// Error and bound of one part of the parameters, relative to its size.
struct Deviation {
  double error = 0, bound = 0;
};

// Squared norms of one part's gradient: of the reference, and of the difference from it of the same
// step with rounded numbers (plain), of the run, and of a step in which relu inputs near 0 have the
// other sign (kinks).
struct PartNorms {
  double reference = 0, plain = 0, run = 0, kinks = 0;  // over this rank's elements
  double whole_plain = 0;
  std::int64_t elements = 0, whole_elements = 0;
};

// `norm`: of the whole gradient of the reference.
Deviation of_gradient(const PartNorms& part, double norm);

// Checks the first update of a part, which is a function of each weight and its gradient alone.
class FirstUpdate {
 public:
  // `norm`: of the run's gradient, by which it is clipped; `decays`: whether weight decay applies.
  FirstUpdate(const config::OptimizerConfig& optimizer, double norm, double lr, bool decays);
  // Adds an element: the weight before, its gradient, the weight after.
  void add(double before, double gradient, double after);
  Deviation deviation(double norm_of_weights) const;

 private:
  // The weight after the update. `rounding`: error of the gradient, relative to the terms that it
  // sums.
  double expected(double w, double gradient, double rounding) const;

  const config::OptimizerConfig& optimizer_;
  double clip_, lr_;
  bool decays_;
  double error_ = 0, bound_ = 0;  // sums of squares
};

// Collective: the worst part over all ranks, by error over bound. `deviations`: of each slice of
// this rank; `place`: the slice's index in `parts`, the parts of the whole model.
Finding worst_part(const std::string& check, const comm::Mesh& mesh,
                   const std::vector<nn::PartSlice>& parts, const std::vector<std::size_t>& place,
                   const std::vector<Deviation>& deviations);

}  // namespace tfm::train
