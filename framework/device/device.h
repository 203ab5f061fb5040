#pragma once
// The device of a rank: CPU cores or one GPU.
#include <memory>
#include <string>

#include "device/memory.h"

namespace tfm::device {

class Device {
 public:
  static Device cpu(int threads) { return Device(threads); }
  // Opens usable GPU `index`, modulo their number, of this machine. Throws Error(environment) if
  // there is no GPU that this build can use.
  static Device gpu(int index, int threads, Numerics numerics = {});
  // Number of GPUs of this machine that this build can use. A build without CUDA support counts
  // those of the NVIDIA driver.
  static int gpus();
  // Describes GPU `index` without opening it. Throws as gpu() does.
  struct Gpu {
    std::string name;  // as reported by the driver
    std::int64_t memory_bytes = 0;
  };
  static Gpu describe_gpu(int index);
  // PCI bus id of GPU `index`, such as "0000:07:00.0"; empty if this build can use no GPU.
  static std::string bus_id(int index);
  // The same, and different for the instances of a GPU that is divided (MIG).
  static std::string unique_id(int index);
  // Why a build with CUDA can use none of the machine's GPUs; empty if there are none.
  static std::string why_no_gpu();
  // The GPU of an existing stream; `threads` is the number of host threads.
  Device(std::shared_ptr<cuda::Stream> stream, int threads)
      : cpu_{threads}, cuda_(std::move(stream)) {}

  bool is_cpu() const { return !cuda_; }
  std::string description() const;  // "cpu", or the GPU's name and bus id and the CUDA versions
  AnyStream stream() {
#ifdef TFM_CUDA
    if (cuda_) return cuda_.get();
#endif
    return &cpu_;
  }
  int threads() const { return cpu_.threads; }  // of the host
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
