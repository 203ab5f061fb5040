#pragma once
// Collectives over tensors in a device's memory: by NCCL, or by any communicator of the host,
// staged through its memory.
#include <set>
#include <string>

#include "comm/mesh.h"
#include "comm/nccl.h"
#include "device/device.h"

namespace tfm::comm {

struct DeviceMeshOptions {
  Backend backend = Backend::automatic;  // automatic: nccl where it is built in and every rank has
                                         // a GPU of its own, else mpi | nccl | mpi
  double timeout = 0;                    // seconds that making NCCL's connections may take; 0: 300
  std::set<Channel> channels;            // of a pipeline: those that this rank is an end of
};

// The same groups for tensors of the device, made on all ranks; `mesh` itself on a CPU. The device
// must outlive the result. Error(environment) where the backend is nccl and this build has none.
Mesh device_mesh(const Mesh& mesh, device::Device& device, const DeviceMeshOptions& options = {});

// "NCCL", or where tensors of a device go instead, and the axes whose do; "" on one rank.
std::string transport_of(const Mesh& tensors);

// Where a rank computes: its device, and its mesh for the host's memory and for the device's.
struct RankContext {
  device::Device device;
  Mesh mesh, tensors;
};
RankContext rank_context(device::Device device, const Mesh& mesh,
                         const DeviceMeshOptions& options = {});  // by device_mesh()

// Collective over `world`: every rank passes the names of its host and device.
Placement placement(Communicator& world, const std::string& host, const std::string& gpu);

}  // namespace tfm::comm
