#pragma once
// The ranks of a job as a grid, and the groups of ranks along sets of its axes.
#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "comm/axis.h"
#include "comm/communicator.h"

namespace tfm::comm {

class FlightRecorder;

// What moves tensors between ranks; automatic: NCCL where every rank has a GPU of its own.
enum class Backend : std::uint8_t { automatic, nccl, mpi };

// A rank's place in the grid and the groups that it exchanges with. A value; no globals.
class Mesh {
 public:
  Mesh() = default;  // of one rank
  // Without groups, which planning does not need.
  explicit Mesh(Layout layout, int rank = 0) : layout(layout), rank_(rank) {}

  Layout layout;
  std::shared_ptr<FlightRecorder> recorder;  // the collectives' log; none in a single mesh

  int rank() const { return rank_; }
  int coordinate(Axis a) const { return layout.coordinate(rank_, a); }
  int place(AxisSet axes) const { return layout.place(rank_, axes); }
  // Of the ranks that differ along these axes only. Only groups that were made are there.
  Communicator& group(AxisSet axes) const;
  Communicator& world() const { return group(kWorld); }
  Communicator& stage() const { return group(layout.stage()); }
  // Of one rank along these axes: ranks that differ along them work alike.
  Mesh without(AxisSet axes) const;
  std::shared_ptr<Communicator>& handle(AxisSet axes) { return groups_[axes.bits()]; }

 private:
  int rank_ = 0;
  std::array<std::shared_ptr<Communicator>, AxisSet::kSets> groups_;
};

// A group of one rank. `copy` moves bytes from one tensor to another; by default between tensors of
// the host.
using CopyBytes = std::function<void(void* to, const void* from, std::int64_t bytes)>;
std::shared_ptr<Communicator> single_communicator(CopyBytes copy = {});

// One rank, no MPI: every group has size one.
Mesh single_mesh();

}  // namespace tfm::comm
