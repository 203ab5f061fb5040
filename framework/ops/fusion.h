#pragma once
// The table of adjacent ops that GPUs run as one kernel (graph/fusion.h).
#include <span>

#include "graph/fusion.h"

namespace tfm::ops {

std::span<const graph::Fusion> fusions();

}  // namespace tfm::ops
