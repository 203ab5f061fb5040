#include "plan/layout_choice.h"

#include <type_traits>

namespace tfm::plan {

static_assert(std::is_trivially_copyable_v<LayoutChoice>, "ranks exchange it");

LayoutChoice LayoutChoice::of(const config::Config& c) {
  const config::ParallelConfig& p = c.parallel;
  return {.data = p.data,
          .balances_stages = p.layers_per_stage.empty(),
          .context = p.context,
          .context_exchange = p.context_exchange,
          .pipeline = p.pipeline,
          .tensor = p.tensor,
          .sequence = p.sequence,
          .schedule = p.schedule,
          .virtual_stages = p.virtual_stages,
          .zero = p.zero,
          .expert = p.expert,
          .recompute = c.recompute,
          .recompute_layers = c.recompute_layers,
          .micro_batch_size = c.train.micro_batch_size,
          .micro_batch_tokens = c.train.micro_batch_tokens};
}

void LayoutChoice::apply(config::Config& c) const {
  config::ParallelConfig& p = c.parallel;
  if (balances_stages) p.layers_per_stage.clear();
  p.data = data, p.context = context, p.context_exchange = context_exchange;
  p.pipeline = pipeline, p.schedule = schedule, p.virtual_stages = virtual_stages;
  p.tensor = tensor, p.sequence = sequence, p.zero = zero, p.expert = expert;
  c.recompute = recompute, c.recompute_layers = recompute_layers;
  c.train.micro_batch_size = micro_batch_size, c.train.micro_batch_tokens = micro_batch_tokens;
}

std::vector<config::Change> changes_of(const config::Config& read, const LayoutChoice& choice) {
  config::Config chosen = read;
  choice.apply(chosen);
  const auto before = config::values_by_key(read), now = config::values_by_key(chosen);
  std::vector<config::Change> all;
  for (const char* key :
       {"parallel.data", "parallel.layers_per_stage", "parallel.context",
        "parallel.context_exchange", "parallel.pipeline", "parallel.tensor", "parallel.sequence",
        "parallel.schedule", "parallel.virtual_stages", "parallel.zero", "parallel.expert",
        "recompute", "recompute_layers", "train.micro_batch_size", "train.micro_batch_tokens"})
    if (before.at(key) != now.at(key)) all.push_back({key, before.at(key), now.at(key)});
  return all;
}

}  // namespace tfm::plan
