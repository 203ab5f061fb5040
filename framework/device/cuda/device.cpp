#include "device/device.h"

#include "core/error.h"
#include "device/cuda/stream.h"

namespace tfm::device {

Device Device::gpu(int index, int threads, Numerics numerics) {
  const int count = cuda::device_count();
  if (count == 0)
    throw Error(ExitCode::environment, "device is cuda, but " + cuda::why_no_device() +
                                           "; expected a GPU with a driver, or device cpu");
  return {std::make_shared<cuda::Stream>(index % count, numerics), threads};
}

}  // namespace tfm::device
