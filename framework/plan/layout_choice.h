#pragma once
// What a search over layouts decides.
#include <string>
#include <vector>

#include "config/config.h"
#include "config/settings.h"

namespace tfm::plan {

// The keys that distribute a run and its memory over ranks. 0 is auto but for `zero`.
struct LayoutChoice {
  std::int64_t data = 0;
  bool balances_stages = true;  // parallel.layers_per_stage is auto; false: as configured
  std::int64_t context = 1;
  config::ContextExchange context_exchange{};
  std::int64_t pipeline = 1, tensor = 1;
  bool sequence = true;
  config::PipelineSchedule schedule{};
  std::int64_t virtual_stages = 0;
  std::int64_t zero = 0;
  std::int64_t expert = 1;
  config::Recompute recompute{};
  std::int64_t recompute_layers = 0;
  std::int64_t micro_batch_size = 0, micro_batch_tokens = 0;

  static LayoutChoice of(const config::Config& config);
  // Sets them in `config`, the configuration as it was read for which they were chosen.
  void apply(config::Config& config) const;
  // As in config::TrainConfig.
  bool counts_tokens() const { return micro_batch_size == 0 && micro_batch_tokens > 0; }
  std::int64_t micro_batch() const {
    return micro_batch_size > 0 ? micro_batch_size : micro_batch_tokens;
  }
  friend bool operator==(const LayoutChoice&, const LayoutChoice&) = default;
};

// The settings by which `choice` differs from `read`, from the outermost axis to the micro-batch.
std::vector<config::Change> changes_of(const config::Config& read, const LayoutChoice& choice);

}  // namespace tfm::plan
