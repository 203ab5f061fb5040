#pragma once
// Collectives over device tensors: by NCCL, or by any host communicator, staged through host
// memory.
#include <set>
#include <string>

#include "comm/mesh.h"
#include "comm/nccl.h"
#include "device/device.h"

namespace tfm::comm {

struct DeviceMeshOptions {
  // automatic: NCCL if this build has it and every rank has a GPU of its own, otherwise MPI.
  Backend backend = Backend::automatic;
  // Seconds that connecting NCCL may take; 0: 300.
  double timeout = 0;
  // The pipeline channels on which this rank sends or receives.
  std::set<Channel> channels;
};

// Collective over `mesh`: its groups for tensors of `device`; `mesh` itself on a CPU. `device` must
// outlive the result. Error(environment) if the backend is nccl and this build has none.
Mesh device_mesh(const Mesh& mesh, device::Device& device, const DeviceMeshOptions& options = {});

// How device tensors travel: "NCCL", or through host memory and on which axes; "" on one rank.
std::string transport_of(const Mesh& tensors);

// Where a rank computes: its device, its mesh for host memory and its mesh for device tensors.
struct RankContext {
  device::Device device;
  Mesh mesh, tensors;
};
// Collective over `mesh`: makes `tensors` with device_mesh().
RankContext rank_context(device::Device device, const Mesh& mesh,
                         const DeviceMeshOptions& options = {});

// Collective over `world`. Every rank passes identifiers of its host and of its GPU.
GpuSharing gpu_sharing(Communicator& world, const std::string& host, const std::string& gpu);

}  // namespace tfm::comm
