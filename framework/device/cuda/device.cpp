#include "device/device.h"

#include "core/error.h"
#include "device/cuda/stream.h"

namespace tfm {

Device Device::gpu(int index, int threads) {
  const int count = cuda::device_count();
  if (count == 0) throw Error(ExitCode::environment, "device: cuda, but there is no GPU here or its driver is too old for CUDA 13; use device: cpu");
  return {std::make_shared<cuda::Stream>(index % count), threads};
}

}  // namespace tfm
