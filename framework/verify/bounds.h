#pragma once
// How far a run in its own precision may be from the reference (as_run.cpp). Bounds follow what
// rounding alone does to the same step, and scale with the share of a part that a rank has.
#include "comm/mesh.h"
#include "optim/rule.h"
#include "verify/finding.h"

namespace tfm::verify {

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

// Checks the first update of a part by a rule that is element-wise.
class UpdateCheck {
 public:
  explicit UpdateCheck(const optim::Rule& rule) : rule_(rule) {}
  // `after`: the weight.
  void add(optim::FirstUpdate update, double after);
  Deviation deviation(double norm_of_weights) const;

 private:
  const optim::Rule& rule_;
  double error_ = 0, bound_ = 0;  // sums of squares
};

// Collective: the worst part over all ranks, by error over bound. `deviations`: of each slice of
// this rank; `place`: the slice's index in `parts`, the parts of the whole model.
Finding worst_part(const std::string& check, const comm::Mesh& mesh,
                   const std::vector<nn::PartSlice>& parts, const std::vector<std::size_t>& place,
                   const std::vector<Deviation>& deviations);

}  // namespace tfm::verify
