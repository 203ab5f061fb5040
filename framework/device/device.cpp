#include "device/device.h"

#include "core/error.h"

#ifndef TFM_CUDA  // else: device/cuda/device.cpp
namespace tfm::device {

Device Device::gpu(int, int, Numerics) {
  throw Error(ExitCode::environment,
              "device is cuda, but this build has no CUDA support; build with -DTFM_CUDA=ON, or "
              "set device to cpu");
}

std::string Device::description() const { return "cpu"; }

}  // namespace tfm::device
#endif
