#include "plan/fit.h"

#include "plan/layouts.h"
#include "plan/rank_plans.h"
#include "plan/run_memory.h"

namespace tfm::plan {
namespace {

// Smaller micro-batches and recomputation; everything else is as in `c`.
std::optional<Fit> with_less_activations(const Layouts& layouts, const config::Config& c,
                                         std::int64_t usable_bytes) {
  bool first = true;
  for (const config::Config& recomputes : layouts.recomputations(c))
    for (const config::Config& candidate : layouts.micro_batches(recomputes)) {
      const auto resolved = layouts.resolve(candidate);
      if (!resolved) continue;
      const device::MemoryPlan memory = plan_of_fullest(*resolved).memory;
      if (memory.total() <= usable_bytes) return Fit{layouts.changes(candidate), memory.total()};
      if (first && memory.total() - memory.categories.at(kActivations) > usable_bytes)
        return std::nullopt;
      first = false;
    }
  return std::nullopt;
}

}  // namespace

std::optional<Fit> nearest_fit(const config::Config& config, int ranks, std::int64_t usable_bytes) {
  const Layouts layouts(config, ranks, From::given);
  for (const Layouts::Grid& grid : layouts.grids())
    if (grid.refusal.empty())
      for (const config::Config& stage : layouts.zero_stages(grid))
        if (const auto fit = with_less_activations(layouts, stage, usable_bytes)) return fit;
  return std::nullopt;
}

}  // namespace tfm::plan
