#pragma once
// Resolves the `auto` settings that depend on a device's memory and speed: the micro-batch size and
// what to recompute.
#include <optional>
#include <string>

#include "plan/device_model.h"
#include "plan/layout_choice.h"

namespace tfm::plan {

struct Choice {
  LayoutChoice layout;
  // "8 (auto: why)"; empty if the configuration sets the value.
  std::string micro_batch_text, recompute_text;
};

// What the run that is resumed had chosen.
struct EarlierChoice {
  std::string from;  // the checkpoint
  LayoutChoice layout;
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
