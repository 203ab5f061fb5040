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

// Searches the changes of `config`, as it was read, that fit in `usable_bytes` per rank. From the
// innermost loop outwards, always starting with the given value: smaller micro-batches, recompute
// selective and full, higher ZeRO stages, sequence parallelism, more tensor ranks, more pipeline
// stages, another context exchange, more context ranks. nullopt if nothing fits.
std::optional<Fit> nearest_fit(const config::Config& config, int ranks, std::int64_t usable_bytes);

}  // namespace tfm::plan
