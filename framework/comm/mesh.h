#pragma once
// The ranks of a job as a grid with named axes: rank = data_rank * tensor + tensor_rank. A value;
// no globals.
#include <cstdint>
#include <memory>
#include <string_view>

#include "comm/communicator.h"

namespace tfm::comm {

class FlightRecorder;

// What moves tensors between ranks; automatic: NCCL where every rank has a GPU of its own.
enum class Backend : std::uint8_t { automatic, nccl, mpi };

struct Layout {
  int data = 1, tensor = 1;
  int world() const { return data * tensor; }
};

enum class Axis : std::uint8_t { data, tensor, world };
std::string_view name_of(Axis a);

struct Mesh {
  Layout layout;
  int data_rank = 0, tensor_rank = 0;
  std::shared_ptr<Communicator> data, tensor, world;
  std::shared_ptr<FlightRecorder> recorder;  // the collectives' log; none in a single mesh

  int rank() const { return data_rank * layout.tensor + tensor_rank; }
  Communicator& group(Axis a) const {
    return a == Axis::data ? *data : a == Axis::tensor ? *tensor : *world;
  }
};

// A group of one rank. `copy` moves bytes from one tensor to another; by default between tensors of
// the host.
using CopyBytes = std::function<void(void* to, const void* from, std::int64_t bytes)>;
std::shared_ptr<Communicator> single_communicator(CopyBytes copy = {});

// One rank, no MPI: every group has size one.
Mesh single_mesh();

}  // namespace tfm::comm
