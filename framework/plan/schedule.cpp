#include "plan/schedule.h"

#include <algorithm>

namespace tfm::plan {

std::vector<Pass> schedule(const comm::Layout& layout, int rank, std::int64_t micro_batches,
                           int chunks) {
  using graph::Section;
  const int ranks = layout.size(nn::kStageAxes);
  std::vector<Pass> all;
  if (ranks == 1) {
    for (std::int64_t m = 0; m < micro_batches; ++m)
      all.push_back({.micro_batch = m, .last = m + 1 == micro_batches});
    return all;
  }
  // Groups are made whole, so that no rank waits for another in a circle; what that adds is left
  // out again.
  const std::int64_t group = chunks > 1 ? ranks : micro_batches;
  std::vector<Pass> forward, backward;
  for (std::int64_t first = 0; first < micro_batches; first += group)
    for (int c = 0; c < chunks; ++c)
      for (std::int64_t m = first; m < first + group; ++m) {
        forward.push_back({{Section::Of::forward, c}, m});
        backward.push_back({{Section::Of::backward, chunks - 1 - c}, m, m + 1 == micro_batches});
      }
  const int behind = ranks - 1 - layout.place(rank, nn::kStageAxes);
  const auto ahead =
      std::min(forward.size(),
               static_cast<std::size_t>(chunks > 1 ? 2 * behind + (chunks - 1) * ranks : behind));
  for (std::size_t i = 0; i < forward.size() + ahead; ++i) {
    if (i < forward.size()) all.push_back(forward[i]);
    if (i >= ahead) all.push_back(backward[i - ahead]);
  }
  std::erase_if(all, [&](const Pass& p) { return p.micro_batch >= micro_batches; });
  return all;
}

std::int64_t slots(const std::vector<Pass>& schedule) {
  std::int64_t most = 0, begun = 0, ended = 0;
  for (const Pass& p : schedule) {
    if (p.section.of == graph::Section::Of::program) return 0;
    const bool forward = p.section.of == graph::Section::Of::forward;
    if (p.section.chunk > 0) continue;
    most = std::max(most, (begun += forward) - ended);
    ended += !forward;
  }
  return most;
}

}  // namespace tfm::plan
