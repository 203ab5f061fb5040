#include "plan/fit.h"

#include "core/error.h"
#include "models/registry.h"
#include "plan/run_memory.h"
#include "plan/step_plan.h"

namespace tfm::plan {
namespace {

// The plan of tensor rank 0, which has the largest share; none where the configuration does not fit
// the number of ranks.
std::optional<StepPlan> plan_of(config::Config config, int ranks) {
  try {
    config::resolve_for_ranks(config, ranks);
  } catch (const Error&) {
    return std::nullopt;
  }
  return make_step_plan(config, comm::Mesh(config::layout_of(config)));
}

std::vector<std::string> changes(const config::Config& from, const config::Config& to) {
  std::vector<std::string> all;
  if (to.train.micro_batch_size != from.train.micro_batch_size)
    all.push_back("train.micro_batch_size=" + std::to_string(to.train.micro_batch_size));
  if (to.recompute != from.recompute) all.push_back("recompute=" + config::word(to.recompute));
  if (to.parallel.zero != from.parallel.zero)
    all.push_back("parallel.zero=" + std::to_string(to.parallel.zero));
  if (to.parallel.tensor != from.parallel.tensor)
    all.push_back("parallel.tensor=" + std::to_string(to.parallel.tensor));
  return all;
}

// Smaller micro-batches and recomputation; everything else is as in `c`.
std::optional<Fit> with_less_activations(const config::Config& given, const config::Config& c,
                                         int ranks, std::int64_t usable_bytes) {
  const auto whole = plan_of(c, ranks);
  if (!whole || whole->memory.total() - whole->memory.categories.at(kActivations) > usable_bytes)
    return std::nullopt;
  using enum config::Recompute;
  for (const config::Recompute recompute : {none, selective, full}) {
    if (recompute < c.recompute) continue;
    for (std::int64_t micro = whole->largest().shape.sequences; micro > 0; micro /= 2) {
      config::Config candidate = c;
      candidate.recompute = recompute;
      if (micro < whole->largest().shape.sequences) candidate.train.micro_batch_size = micro;
      const auto plan = plan_of(candidate, ranks);
      if (plan && plan->memory.total() <= usable_bytes)
        return Fit{changes(given, candidate), plan->memory.total()};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Fit> nearest_fit(const config::Config& config, int ranks, std::int64_t usable_bytes) {
  for (std::int64_t tensor = config.parallel.tensor; tensor <= ranks; tensor *= 2) {
    if (tensor > config.parallel.tensor && config.parallel.data > 0) break;
    for (std::int64_t zero : {config.parallel.zero, std::int64_t{1}}) {
      config::Config candidate = config;
      candidate.parallel.tensor = tensor;
      candidate.parallel.zero = zero;
      if (const auto fit = with_less_activations(config, candidate, ranks, usable_bytes))
        return fit;
      if (config.parallel.zero > 0) break;
    }
  }
  return std::nullopt;
}

}  // namespace tfm::plan
