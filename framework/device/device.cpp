#include "device/device.h"

#include "core/error.h"

#ifndef TFM_CUDA  // else: device/cuda/device.cpp
#include <filesystem>
#include <iterator>

namespace tfm::device {

namespace {

[[noreturn]] void no_support() {
  throw Error(ExitCode::environment,
              "device is cuda, but this build has no CUDA support; build with -DTFM_CUDA=ON, or "
              "set device to cpu");
}

}  // namespace

Device Device::gpu(int, int, Numerics) { no_support(); }
Device::Gpu Device::describe_gpu(int) { no_support(); }
std::string Device::bus_id(int) { return ""; }
std::string Device::unique_id(int) { return ""; }
std::string Device::why_no_gpu() { return ""; }

int Device::gpus() {
  std::error_code none;
  const std::filesystem::directory_iterator all("/proc/driver/nvidia/gpus", none);
  return none ? 0 : static_cast<int>(std::distance(begin(all), end(all)));
}

std::string Device::description() const { return "cpu"; }

}  // namespace tfm::device
#endif
