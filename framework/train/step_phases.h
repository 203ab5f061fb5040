#pragma once
// Where the time of a step goes.
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "train/engine.h"

namespace tfm::train {

using StepPhases = std::vector<std::pair<std::string_view, double>>;  // seconds, in order of time
// All names of phases; "step" where those of a device are not known.
inline constexpr std::array<std::string_view, 9> kPhases{
    "data", "step", "forward", "recompute", "backward", "reduce", "optimizer", "gather", "other"};

// data, forward, recompute, backward, reduce, optimizer, and what else the `whole` step took.
// Collectives of the tensor axis are in forward and backward. `times`: of a step of `program`.
StepPhases phases_of_step(const graph::Program& program, const StepTimes& times, double data,
                          double whole);

}  // namespace tfm::train
