#pragma once
// The time of a step by phase.
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "train/engine.h"

namespace tfm::train {

using StepPhases = std::vector<std::pair<std::string_view, double>>;  // seconds, in order of time
// The names of all phases. "step": a device's step whose phases are not known.
inline constexpr std::array<std::string_view, 9> kPhases{
    "data", "step", "forward", "recompute", "backward", "reduce", "optimizer", "gather", "other"};

// The phases of a step of `whole` seconds, of which `data` were for data: data, forward, recompute,
// backward, reduce, optimizer, gather if the program gathers, and other, the rest. Collectives of
// the tensor axis are in forward and backward. `times`: of a step of `program`.
StepPhases phases_of_step(const graph::Program& program, const StepTimes& times, double data,
                          double whole);

}  // namespace tfm::train
