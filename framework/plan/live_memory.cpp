#include "plan/live_memory.h"

#include <numeric>

namespace tfm::plan {

std::vector<std::int64_t> live_bytes(const graph::Program& program) {
  const std::size_t steps = program.instructions().size();
  std::vector<std::int64_t> change(steps + 1);
  for (const graph::Buffer& b : program.buffers()) {
    if (!b.in_arena() || b.first < 0) continue;
    change[static_cast<std::size_t>(b.first)] += b.bytes;
    if (const auto after = static_cast<std::size_t>(b.last) + 1; after < steps)
      change[after] -= b.bytes;
  }
  change.pop_back();
  std::partial_sum(change.begin(), change.end(), change.begin());
  return change;
}

}  // namespace tfm::plan
