#pragma once
// The smallest change of a configuration that makes a plan fit its device.
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"

namespace tfm::plan {

struct Fit {
  std::vector<std::string> changes;  // "section.key=value"
  std::int64_t bytes = 0;            // of the rank that needs most
};

// Tries, for `config` as it was read, smaller micro-batches, then recompute selective and full,
// then higher ZeRO stages, then sequence parallelism, then more tensor ranks; each with what stands
// before it, and first without. Empty where nothing of this fits `usable_bytes` a rank.
std::optional<Fit> nearest_fit(const config::Config& config, int ranks, std::int64_t usable_bytes);

}  // namespace tfm::plan
