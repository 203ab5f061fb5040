#include "device/device.h"

#include "core/error.h"
#include "device/cuda/stream.h"

namespace tfm::device {
namespace {

// Of this machine's GPUs.
int place_of(int index) {
  const std::vector<int> usable = cuda::usable_devices();
  if (usable.empty())
    throw Error(ExitCode::environment, "device is cuda, but " + cuda::why_no_device() +
                                           "; expected a GPU with a driver, or device cpu");
  return usable[static_cast<std::size_t>(index) % usable.size()];
}

}  // namespace

Device Device::gpu(int index, int threads, Numerics numerics) {
  return {std::make_shared<cuda::Stream>(place_of(index), numerics), threads};
}

Device::Gpu Device::describe_gpu(int index) {
  cudaDeviceProp properties;
  cuda::check(cudaGetDeviceProperties(&properties, place_of(index)));
  return {properties.name, static_cast<std::int64_t>(properties.totalGlobalMem)};
}

std::string Device::bus_id(int index) { return gpus() > 0 ? cuda::bus_id(place_of(index)) : ""; }

std::string Device::unique_id(int index) {
  return gpus() > 0 ? cuda::unique_id(place_of(index)) : "";
}

std::string Device::why_no_gpu() { return cuda::why_unusable(); }

int Device::gpus() { return static_cast<int>(cuda::usable_devices().size()); }

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
