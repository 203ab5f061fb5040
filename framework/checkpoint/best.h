#pragma once
// The best evaluation of a run so far by one metric, for early stopping.
#include <cmath>
#include <cstdint>

#include "config/options.h"

namespace tfm::checkpoint {

struct Best {
  // Loss and perplexity: lower is better; others: higher.
  config::Metric metric = config::Metric::loss;
  std::int64_t step = -1;  // -1: none yet
  double value = 0;
  std::int64_t since = 0;  // evaluations since the best one

  // Records an evaluation; true if it is the best so far. NaN and infinities never are.
  bool improve(std::int64_t at, double found) {
    const bool low = metric == config::Metric::loss || metric == config::Metric::perplexity;
    const bool better = std::isfinite(found) && (step < 0 || (low ? found < value : found > value));
    if (better)
      step = at, value = found, since = 0;
    else
      ++since;
    return better;
  }
  bool operator==(const Best&) const = default;
};

}  // namespace tfm::checkpoint
