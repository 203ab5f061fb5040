#pragma once
// The table of neighbouring ops that a device runs at once (graph/fusion.h).
#include <span>

#include "graph/fusion.h"

namespace tfm::ops {

std::span<const graph::StepPair> fusions();

}  // namespace tfm::ops
