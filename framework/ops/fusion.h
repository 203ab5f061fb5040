#pragma once
// The tables of neighbouring ops that a device runs at once (graph/fusion.h).
#include <span>

#include "graph/fusion.h"

namespace tfm::ops {

std::span<const graph::StepPair> fusions();   // in one kernel
std::span<const graph::StepPair> overlaps();  // a collective beside a part of the other's work

}  // namespace tfm::ops
