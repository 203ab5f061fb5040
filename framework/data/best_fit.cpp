#include "data/best_fit.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace tfm::data {

std::vector<std::vector<std::size_t>> best_fit(const std::vector<std::int64_t>& sizes,
                                               std::int64_t length) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return sizes[a] > sizes[b]; });
  std::vector<std::vector<std::size_t>> packed;
  std::multimap<std::int64_t, std::size_t> room;  // of the sequences so far
  for (const std::size_t item : order) {
    const auto best = room.lower_bound(sizes[item]);
    std::size_t sequence = packed.size();
    std::int64_t left = length - sizes[item];
    if (best != room.end()) {
      sequence = best->second;
      left = best->first - sizes[item];
      room.erase(best);
    } else {
      packed.emplace_back();
    }
    packed[sequence].push_back(item);
    room.emplace(left, sequence);
  }
  std::ranges::sort(packed, {}, [](const auto& items) { return std::ranges::min(items); });
  return packed;
}

}  // namespace tfm::data
