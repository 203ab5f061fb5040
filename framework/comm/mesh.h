#pragma once
// The grid of a job's ranks, and the process groups along sets of its axes.
#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "comm/axis.h"
#include "comm/communicator.h"

namespace tfm::comm {

class FlightRecorder;
class Messages;

// What moves tensors between ranks; automatic: NCCL where every rank has a GPU of its own.
enum class Backend : std::uint8_t { automatic, nccl, mpi };

// A rank's position in the grid and its process groups. Copies share the groups.
class Mesh {
 public:
  Mesh() = default;  // one rank, no groups
  // Without groups, which is enough for planning.
  explicit Mesh(Layout layout, int rank = 0) : layout(layout), rank_(rank) {}

  Layout layout;
  std::shared_ptr<FlightRecorder> recorder;  // log of the collectives; null in a single mesh
  std::shared_ptr<Messages> messages;        // between stages of a pipeline; null with one stage

  int rank() const { return rank_; }
  int coordinate(Axis a) const { return layout.coordinate(rank_, a); }
  int place(AxisSet axes) const { return layout.place(rank_, axes); }
  // The group of the ranks that differ only along `axes`. It must be among the groups that were
  // made.
  Communicator& group(AxisSet axes) const;
  Communicator& world() const { return group(kWorld); }
  Communicator& stage() const { return group(layout.stage()); }
  // This mesh with one rank along each of `axes`: ranks that differ along them do the same work.
  Mesh without(AxisSet axes) const;
  std::shared_ptr<Communicator>& handle(AxisSet axes) { return groups_[axes.bits()]; }

 private:
  int rank_ = 0;
  std::array<std::shared_ptr<Communicator>, AxisSet::kSets> groups_;
};

// A group of one rank. `copy` copies bytes from one tensor to another; the default copies host
// memory.
using CopyBytes = std::function<void(void* to, const void* from, std::int64_t bytes)>;
std::shared_ptr<Communicator> single_communicator(CopyBytes copy = {});

// One rank, no MPI: every group has size one.
Mesh single_mesh();

}  // namespace tfm::comm
