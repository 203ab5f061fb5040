#pragma once
// A training step computed plainly: float64 CPU kernels, one rank, one sequence at a time, nothing
// recomputed. With rounding, each op's results and gradients are rounded to the precision of a run
// as soon as they are written, which shows the error that the precision itself makes.
#include <optional>
#include <vector>

#include "train/engine.h"
#include "verify/synthetic_data.h"

namespace tfm::verify {

class ReferenceStep {
 public:
  // `run`: the configuration of the run, with its global batch.
  ReferenceStep(const config::Config& run, int threads);

  // The configuration of the reference step for `run`.
  static config::Config configuration(const config::Config& run);

  DType precision() const { return plan::dtype_of(engine_.plan().config.precision); }  // of the run
  bool has_kinks() const;  // whether an op of the model has any (graph::Op::kinks)
  const nn::ParameterSet& parameters() const { return engine_.model().parameters(); }
  // `parts`: whole parts, in the order of parameters().slices().
  void set_weights(const std::vector<std::vector<double>>& parts);

  // The numbers x for which x times `scale` is a number of the precision. 1: the precision's own
  // numbers. Other scales give errors that are as large, and independent of those of 1.
  struct Grid {
    double scale = 1;
  };
  // Returns the loss of batch `step` - 1 of SyntheticData; gradients() then holds its gradients
  // times the loss scale. `kinks`: relu takes the derivative of its other side where its input is
  // nearer to 0 than so many times the root mean square of the op's inputs.
  double compute(std::int64_t step, double loss_scale, const std::optional<Grid>& rounding,
                 double kinks = 0);
  const double* gradients() const { return static_cast<const double*>(engine_.flat().gradients); }

 private:
  class Hooks;

  train::Engine engine_;
  SyntheticData data_;
  std::vector<DType> values_, gradient_types_;  // of the run's recording, by value
};

// The unit roundoff of a precision: half the spacing of numbers just above 1. fp32 counts as three
// bits less, for the sums that are rounded within its ops; 16-bit ops sum in fp32.
double rounding_unit(DType precision);

}  // namespace tfm::verify
