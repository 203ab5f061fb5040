#pragma once
// Bytes that a rank sends in a step, counted from the plan's list of collectives, compared with the
// formulas of the literature (Rajbhandari et al. 2020, section 7; Shoeybi et al. 2019, section 3;
// Korthikanti et al. 2022, section 4.2).
#include <string>
#include <vector>

#include "plan/step_plan.h"

namespace tfm::plan {

// The collectives of one kind over the same axes.
struct Traffic {
  comm::Collective kind{};
  comm::AxisSet axes;
  std::int64_t count = 0, bytes = 0;  // bytes: of the whole tensors
  double sent = 0;                    // see ring_bytes()
};
std::vector<Traffic> traffic(const StepPlan& plan);

// All traffic along some axes; sent - textbook is the sum of the differences.
struct TextbookTraffic {
  std::string axes, formula;
  double sent = 0, textbook = 0;
  struct Difference {
    std::string why;
    double bytes = 0;
  };
  std::vector<Difference> differences;  // none is 0
};

// The traffic along the token, model, sequence and stage axes that have several ranks. Collectives
// over all ranks count to the token axes. The formulas, with P elements of parameters and of their
// gradients on a rank:
// - Token axes: all-reduce of gradients, 2 P; ZeRO 1 and 2: reduce-scatter of gradients and
//   all-gather of parameters, 2 P; ZeRO 3: two all-gathers, for forward and for backward, 3 P.
// - Model axes, per layer and micro-batch: 4 all-reduces of its rows, two in forward and two in
//   backward; under sequence parallelism as many bytes in gathers and reduce-scatters.
// - Sequence axes, per layer and micro-batch: gathers of keys and values for forward and for
//   backward, and a reduce-scatter; with context_exchange ring, keys and values to all other ranks
//   in forward and in backward, and their gradients once around the ring.
// - Stage axes (Narayanan et al. 2021, section 3.2): the rows of each micro-batch to the next
//   stage, their gradients to the one before.
std::vector<TextbookTraffic> textbook_traffic(const StepPlan& plan);

}  // namespace tfm::plan
