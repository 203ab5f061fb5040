#pragma once
// Bytes that a rank sends in a step, counted from the plan's list of collectives, beside what the
// literature's formulas give (Rajbhandari et al. 2020, section 7; Shoeybi et al. 2019, section 3;
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
  double sent = 0;                    // by rings
};
std::vector<Traffic> traffic(const StepPlan& plan);

// What axes exchange, all of it: sent - textbook is the sum of the differences.
struct TextbookTraffic {
  std::string axes, formula;
  double sent = 0, textbook = 0;
  struct Difference {
    std::string why;
    double bytes = 0;
  };
  std::vector<Difference> differences;  // none is 0
};

// Of the axes that share out tokens, to which collectives over all ranks count, of those that share
// out layers, and of those that share out sequences; those of one rank are left out. Formulas, of P
// elements of parameters and their gradients on a rank: all-reduce of gradients, 2 P; ZeRO 1 and 2,
// reduce-scatter of gradients and all-gather of parameters, 2 P; ZeRO 3, gathers for forward and
// for backward, 3 P. Of a layer and a micro-batch: 4 all-reduces of its rows, two in forward and
// two in backward, or under sequence parallelism as many bytes in gathers and reduce-scatters. Of
// sequences: gathers of a layer's keys and values for forward and for backward, and a
// reduce-scatter. Of a pipeline (Narayanan et al. 2021, section 3.2): a micro-batch's rows to each
// neighbour, in one direction their gradients.
std::vector<TextbookTraffic> textbook_traffic(const StepPlan& plan);

}  // namespace tfm::plan
