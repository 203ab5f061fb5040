#pragma once
// Where the time of a step goes.
#include <string_view>
#include <utility>
#include <vector>

#include "train/engine.h"

namespace tfm::train {

using StepPhases = std::vector<std::pair<std::string_view, double>>;  // seconds, in order of time

// data, forward, recompute, backward, reduce, optimizer, and what else the `whole` step took.
// Collectives of the tensor axis are in forward and backward. `times`: of a step of `program`.
StepPhases phases_of_step(const graph::Program& program, const StepTimes& times, double data,
                          double whole);

}  // namespace tfm::train
