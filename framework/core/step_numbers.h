#pragma once
// What kernels read of a step when they run, from the memory of their stream, so that launches which were recorded once serve every step.
#include <array>
#include <cstdint>

namespace tfm {

struct StepNumbers {
  std::int64_t first_sequence = 0;             // index of the micro-batch's first sequence within the global batch
  std::array<double, 2> gradient_scale{1, 1};  // of each objective: loss scale / its labels in the global batch
  std::uint32_t step = 0;                      // of the optimizer, from 1
};

}  // namespace tfm
