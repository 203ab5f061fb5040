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

int Device::gpus() { return cuda::device_count(); }

std::string Device::description() const {
  if (is_cpu()) return "cpu";
  cudaDeviceProp properties;
  int driver = 0;
  cuda::check(cudaGetDeviceProperties(&properties, cuda_->device()));
  cuda::check(cudaDriverGetVersion(&driver));
  return properties.name + (" at " + cuda::bus_id(cuda_->device())) + ", driver for CUDA " +
         cuda::version_text(driver) + ", built with CUDA " + cuda::version_text(CUDART_VERSION);
}

}  // namespace tfm::device
