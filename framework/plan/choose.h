#pragma once
// Resolves the `auto` settings that depend on a device's memory and speed: the micro-batch size and
// what to recompute.
#include <optional>
#include <string>

#include "config/config.h"
#include "plan/device_model.h"

namespace tfm::plan {

struct Choice {
  std::int64_t micro_batch = 0;  // TrainConfig::micro_batch()
  config::Recompute recompute = config::Recompute::none;
  std::int64_t recompute_layers = 0;  // 0: all
  // "8 (auto: why)"; empty if the configuration sets the value.
  std::string micro_batch_text, recompute_text;

  // Overwrites the settings in `config`, a configuration as it was read.
  void set(config::Config& config) const {
    config.train.set_micro_batch(micro_batch);
    config.recompute = recompute, config.recompute_layers = recompute_layers;
  }
};

// What the run that is resumed had chosen.
struct EarlierChoice {
  std::string from;  // the checkpoint
  std::int64_t micro_batch = 0;
  config::Recompute recompute = config::Recompute::none;
  std::int64_t recompute_layers = 0;
};

// The share of a step's time that a choice has to save to be worth more memory.
inline constexpr double kLeastGain = 0.01;

// Chooses the settings that are `auto`. `config`: as it was read. `earlier` is kept if the ranks
// can run it and it fits. Error(usage) if `config` cannot be resolved for the ranks.
//
// Micro-batch: up to 4096 tokens (resolve_for_ranks; of sentence pairs on each side), or fewer if
// these do not fit. If they fit, the smallest size that no larger one that fits beats by kLeastGain
// of the predicted time. For batches by length the longest shape is predicted.
//
// Recomputation: the first of none, selective and full that fits. A later one is taken only if
// memory bounds the micro-batches of the earlier ones and its larger ones save kLeastGain. It
// covers as few of the first blocks of each rank as the chosen micro-batch needs to fit.
//
// If nothing fits, the choice that takes the least memory.
Choice choose(const config::Config& config, int ranks, const DeviceModel& device,
              const std::optional<EarlierChoice>& earlier = {});

}  // namespace tfm::plan
