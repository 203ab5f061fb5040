#pragma once
// Collectives over tensors in a device's memory, staged through the host's: any communicator becomes one for device tensors.
#include "comm/mesh.h"
#include "device/device.h"

namespace tfm {

// The same groups for tensors of the device; `mesh` itself on a CPU. The device must outlive the result.
Mesh device_mesh(const Mesh& mesh, Device& device);

}  // namespace tfm
