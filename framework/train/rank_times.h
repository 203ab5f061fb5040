#pragma once
// Where the time of all ranks goes, and for which rank the others wait.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "train/step_phases.h"

namespace tfm::train {

class RankTimes {
 public:
  // Collective. `tensors`: the groups of device tensors; of axes along which a device completes the
  // collectives by itself, no time is known.
  RankTimes(const comm::Mesh& mesh, const comm::Mesh& tensors);
  void add(const StepPhases& phases);  // of a step of this rank
  void gather();                       // collective

  int ranks() const { return static_cast<int>(hosts_.size()); }
  const std::string& host(int rank) const { return hosts_[static_cast<std::size_t>(rank)]; }
  // Seconds since the start, as of the last gather(): of step phases by name, and in collectives by
  // axes, without those that a device completes.
  std::map<std::string_view, double> phases(int rank) const;
  std::map<std::string, double> collectives(int rank) const;
  // The rank that spent the least time in collectives between the last two calls of gather().
  // `seconds`: how much more the median rank spent there per step; if that is much, it waited for
  // this rank.
  struct Straggler {
    int rank = 0;
    double seconds = 0;
  };
  std::optional<Straggler> straggler() const;  // nullopt if no such time is known

 private:
  std::size_t width() const { return kPhases.size() + axes_.size(); }
  double at(const std::vector<double>& rows, int rank, std::size_t column) const {
    return rows[static_cast<std::size_t>(rank) * width() + column];
  }

  comm::Mesh mesh_;
  std::vector<std::string> hosts_;
  std::vector<comm::AxisSet> axes_;          // of several ranks
  std::vector<double> mine_, all_, before_;  // rows of `width()` totals
  int steps_ = 0, steps_of_all_ = 0;         // since the last gather(); of the last interval
};

}  // namespace tfm::train
