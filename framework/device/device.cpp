#include "device/device.h"

#include "core/error.h"

#ifndef TFM_CUDA  // else: device/cuda/device.cpp
namespace tfm::device {

Device Device::gpu(int, int, Numerics) {
  throw Error(ExitCode::environment,
              "device: cuda, but this build has no device code; build with -DTFM_CUDA=ON where the "
              "CUDA toolkit is, or use device: cpu");
}

}  // namespace tfm::device
#endif
