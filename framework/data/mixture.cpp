#include "data/mixture.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/strings.h"

namespace tfm::data {
namespace {

constexpr std::int64_t block = 1000;

// Positions of a block per weight, at least 1 each, by the largest remainder method; ties go to the
// first.
std::vector<std::int32_t> shares_of(const std::vector<double>& weights) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  const std::size_t n = weights.size();
  std::vector<std::int32_t> count(n);
  std::vector<double> remainder(n);
  std::int64_t left = block;
  for (std::size_t k = 0; k < n; ++k) {
    const double share = weights[k] / total * static_cast<double>(block);
    count[k] = std::max(1, static_cast<std::int32_t>(share));
    remainder[k] = share - count[k];
    left -= count[k];
  }
  // Fewer than 0 are left where small weights were raised to 1: others give them up.
  for (; left != 0; left += left < 0 ? 1 : -1) {
    std::size_t pick = n;
    for (std::size_t k = 0; k < n; ++k) {
      if (left < 0 && count[k] == 1) continue;
      if (pick == n || (left > 0 ? remainder[k] > remainder[pick] : remainder[k] < remainder[pick]))
        pick = k;
    }
    count[pick] += left < 0 ? -1 : 1;
    remainder[pick] -= left < 0 ? -1 : 1;
  }
  return count;
}

}  // namespace

Mixture::Mixture(const std::vector<double>& weights, std::vector<std::int64_t> sizes)
    : sizes_(std::move(sizes)) {
  if (static_cast<std::int64_t>(weights.size()) > block)
    throw Error(ExitCode::usage, "path: expected at most 1000 paths if they have weights, got " +
                                     std::to_string(weights.size()));
  count_ = shares_of(weights);
  std::int64_t blocks = 0;
  for (std::size_t k = 0; k < sizes_.size(); ++k)
    blocks = std::max(blocks, ceil_div(sizes_[k], count_[k]));
  samples_ = blocks * block;
  std::vector<std::int32_t> given(sizes_.size());
  for (std::int64_t s = 0; s < block;
       ++s) {  // the path that lags most behind its share of the first s + 1 positions
    std::size_t pick = 0;
    std::int64_t most = std::numeric_limits<std::int64_t>::min();
    for (std::size_t k = 0; k < sizes_.size(); ++k) {
      const std::int64_t lag = count_[k] * (s + 1) - given[k] * block;
      if (given[k] < count_[k] && lag > most) most = lag, pick = k;
    }
    dealt_.push_back(static_cast<std::int32_t>(pick));
    nth_.push_back(given[pick]++);
  }
}

Mixture::Item Mixture::item(std::int64_t position) const {
  const auto at = static_cast<std::size_t>(position % block);
  const auto k = static_cast<std::size_t>(dealt_[at]);
  return {k, (position / block * count_[k] + nth_[at]) % sizes_[k]};
}

}  // namespace tfm::data
