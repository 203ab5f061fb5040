#pragma once
// Sequences of a run's training data as text, to be looked at before it trains.
#include <string>

#include "config/config.h"

namespace tfm::data {

// The first `count` sequences of the first batches: what the model reads and what it learns to say,
// special tokens by their names or as <id>. Tokens without a label are left out of what it says;
// .. stands for each gap. Throws as RunData does.
std::string samples_text(const config::Config& config, std::int64_t count);

// The same sequences as lines of JSON: "batch", its index, and of each field of its shape,
// by its name, the elements; null for a number that is missing.
std::string samples_json(const config::Config& config, std::int64_t count);

}  // namespace tfm::data
