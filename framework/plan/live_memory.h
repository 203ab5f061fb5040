#pragma once
// The activation memory in use over a step.
#include <cstdint>
#include <vector>

#include "graph/program.h"

namespace tfm::plan {

// Bytes in use while each instruction of the program runs, without gaps between buffers.
std::vector<std::int64_t> live_bytes(const graph::Program& program);

}  // namespace tfm::plan
