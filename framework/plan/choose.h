#pragma once
// What `auto` stands for where a device's memory and time decide it: the size of a micro-batch and
// what is recomputed.
#include <optional>
#include <string>

#include "config/config.h"
#include "plan/device_model.h"

namespace tfm::plan {

struct Choice {
  std::int64_t micro_batch = 0;  // TrainConfig::micro_batch()
  config::Recompute recompute = config::Recompute::none;
  std::int64_t recompute_layers = 0;  // 0: all
  // "8 (auto: why)"; empty where the configuration says it.
  std::string micro_batch_text, recompute_text;

  // Instead of what `config`, as it was read, has.
  void set(config::Config& config) const {
    config.train.set_micro_batch(micro_batch);
    config.recompute = recompute, config.recompute_layers = recompute_layers;
  }
};

// What a run that is resumed has chosen when it was started.
struct EarlierChoice {
  std::string from;  // the checkpoint
  std::int64_t micro_batch = 0;
  config::Recompute recompute = config::Recompute::none;
  std::int64_t recompute_layers = 0;
};

inline constexpr double kLeastGain = 0.01;  // of a step's time, for which memory is spent

// A micro-batch has up to 4096 tokens (resolve_for_ranks; of pairs of sentences on each side),
// fewer where these do not fit, and more while they fit and save kLeastGain of the predicted time:
// the smallest that no larger one beats by that. Of batches by length the longest is predicted. The
// first of recompute none, selective and full that fits is taken; a later one only where memory
// bounds the micro-batches of the earlier ones and its larger ones save kLeastGain. It is for as
// many of the first blocks of each rank as the chosen micro-batch needs to fit. Where nothing fits,
// what takes the least memory. `config`: as it was read. Error(usage) where it cannot be resolved
// for the ranks.
Choice choose(const config::Config& config, int ranks, const DeviceModel& device,
              const std::optional<EarlierChoice>& earlier = {});

}  // namespace tfm::plan
