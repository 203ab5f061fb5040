#include "plan/checkpoint_size.h"

namespace tfm::plan {

std::int64_t checkpoint_bytes(const StepPlan& plan) {
  const nn::ParameterSet& parameters = plan.model().parameters();
  const optim::OptimizerOptions options = optimizer_of(plan);
  const optim::ShardLayout& shards = plan.shards();
  const bool master = is_half(plan.dtype);
  std::int64_t elements = 0;
  if (!master)
    for (const nn::PartSlice& p : parameters.slices())
      if (parameters.first_of_copies(p.parameter, comm::kWorld)) elements += p.elements();
  for (const optim::PartRange& r : shards.parts) {
    if (!r.counted) continue;
    const std::int64_t states =
        std::ranges::count(shards.states, r.group, &optim::ShardLayout::ElementState::group);
    elements += r.count() * (states + (master ? 1 : 0) + (options.ema > 0 ? 1 : 0));
  }
  if (plan.mesh.place(plan.mesh.layout.stage()) == 0)
    for (const optim::PartState& s : shards.part_states) elements += s.shape.elements();
  return elements * 4;
}

}  // namespace tfm::plan
