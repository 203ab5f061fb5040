#pragma once
// The device of a rank: its CPU cores, or one GPU.
#include <memory>
#include <string>

#include "device/memory.h"

namespace tfm::device {

class Device {
 public:
  static Device cpu(int threads) { return Device(threads); }
  // GPU `index`, modulo the number of GPUs, of this machine. Error(environment) where there is
  // none, or none this build can use.
  static Device gpu(int index, int threads, Numerics numerics = {});
  // GPUs of this machine: those that this build can use; without CUDA support those of its driver.
  static int gpus();
  // Of GPU `index`, which is not opened. Error(environment) as gpu().
  struct Gpu {
    std::string name;  // as its driver says it
    std::int64_t memory_bytes = 0;
  };
  static Gpu describe_gpu(int index);
  // Where GPU `index` is, "0000:07:00.0"; empty where this build can use none.
  static std::string bus_id(int index);
  // Kernels run on the GPU that the stream is of; `threads`: of the host.
  Device(std::shared_ptr<cuda::Stream> stream, int threads)
      : cpu_{threads}, cuda_(std::move(stream)) {}

  bool is_cpu() const { return !cuda_; }
  std::string description() const;  // "cpu", or the GPU's name and place and the driver's version
  AnyStream stream() {
#ifdef TFM_CUDA
    if (cuda_) return cuda_.get();
#endif
    return &cpu_;
  }
  cpu::Stream& host() { return cpu_; }
  std::shared_ptr<std::byte> allocate(std::int64_t bytes) {
    return on(stream(), [&](auto& s) { return tfm::device::allocate(s, bytes); });
  }
  std::shared_ptr<std::byte> allocate_host(std::int64_t bytes) {
    return on(stream(), [&](auto& s) { return tfm::device::allocate_host(s, bytes); });
  }

 private:
  explicit Device(int threads) : cpu_{threads} {}
  cpu::Stream cpu_;
  std::shared_ptr<cuda::Stream> cuda_;
};

}  // namespace tfm::device
