#include "train/rank_times.h"

#include <algorithm>
#include <utility>

#include "comm/consensus.h"
#include "comm/flight_recorder.h"
#include "core/host.h"
#include "nn/placement.h"

namespace tfm::train {
RankTimes::RankTimes(const comm::Mesh& mesh, const comm::Mesh& tensors)
    : mesh_(mesh), hosts_(comm::gather(mesh.world(), host_name())) {
  for (const comm::AxisSet axes : mesh.layout.groups())
    if (mesh.layout.size(axes) > 1 && !tensors.group(axes).on_stream()) axes_.push_back(axes);
  if (mesh.messages && !tensors.messages->on_stream()) axes_.push_back(nn::kStageAxes);
  mine_.resize(width());
  all_.resize(width() * hosts_.size());
}

void RankTimes::add(const StepPhases& phases) {
  for (const auto& [name, seconds] : phases)
    mine_[static_cast<std::size_t>(std::ranges::find(kPhases, name) - kPhases.begin())] += seconds;
  ++steps_;
}

void RankTimes::gather() {
  for (std::size_t i = 0; i < axes_.size(); ++i)
    mine_[kPhases.size() + i] = mesh_.recorder->waited()[axes_[i].bits()];
  before_ = all_;
  steps_of_all_ = std::exchange(steps_, 0);
  mesh_.world().all_gather({mine_.data(), DType::f64, {std::ssize(mine_)}},
                           {all_.data(), DType::f64, {std::ssize(all_)}});
}

std::map<std::string_view, double> RankTimes::phases(int rank) const {
  std::map<std::string_view, double> seconds;
  for (std::size_t i = 0; i < kPhases.size(); ++i)
    if (const double s = at(all_, rank, i); s > 0) seconds[kPhases[i]] = s;
  return seconds;
}

std::map<std::string, double> RankTimes::collectives(int rank) const {
  std::map<std::string, double> seconds;
  for (std::size_t i = 0; i < axes_.size(); ++i)
    seconds[comm::name_of(axes_[i])] = at(all_, rank, kPhases.size() + i);
  return seconds;
}

std::optional<RankTimes::Straggler> RankTimes::straggler() const {
  if (axes_.empty() || steps_of_all_ == 0) return {};
  std::vector<std::pair<double, int>> waits;
  for (int r = 0; r < ranks(); ++r) {
    double seconds = 0;
    for (std::size_t i = kPhases.size(); i < width(); ++i)
      seconds += at(all_, r, i) - at(before_, r, i);
    waits.emplace_back(seconds / steps_of_all_, r);
  }
  std::ranges::sort(waits);
  return Straggler{waits.front().second, waits[waits.size() / 2].first - waits.front().first};
}

}  // namespace tfm::train
