#pragma once
// How far a run in its own precision may be from the reference (as_run.cpp): bounds follow what
// rounding alone does to the same step, and scale with the part that a rank has.
#include "config/config.h"
#include "train/verify.h"

namespace tfm::train {

// Of a part of the parameters, relative to its size.
struct Deviation {
  double error = 0, bound = 0;
};

// Squares of norms of one part's gradient: of the reference; of how far from it are the same step
// with rounded numbers, the run, and a step whose relus near 0 have the other sign.
struct PartNorms {
  double reference = 0, plain = 0, run = 0, kinks = 0;  // over this rank's elements
  double whole_plain = 0;
  std::int64_t elements = 0, whole_elements = 0;
};

// `norm`: of the reference's whole gradient.
Deviation of_gradient(const PartNorms& part, double norm);

// The first update of a part, which is a function of each weight and of its gradient alone.
class FirstUpdate {
 public:
  // `norm`: of the run's gradient, by which it is clipped; `decays`: whether weight decay applies.
  FirstUpdate(const config::OptimizerConfig& optimizer, double norm, double lr, bool decays);
  // An element: the weight before, the gradient, the weight after.
  void add(double before, double gradient, double after);
  Deviation deviation(double norm_of_weights) const;

 private:
  // `rounding`: of the gradient, relative to the terms that it is the sum of.
  double expected(double w, double gradient, double rounding) const;

  const config::OptimizerConfig& optimizer_;
  double clip_, lr_;
  bool decays_;
  double error_ = 0, bound_ = 0;  // sums of squares
};

// The worst part over all ranks, of the deviation of each of a rank's slices. `place`: of these
// among the parts of the whole model.
Finding worst_part(const std::string& check, const comm::Mesh& mesh,
                   const std::vector<nn::PartSlice>& parts, const std::vector<std::size_t>& place,
                   const std::vector<Deviation>& deviations);

}  // namespace tfm::train
