#pragma once
// A CUDA stream, and how a failed call of the runtime becomes an Error.
#include <cuda_runtime.h>

#include <map>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <typeindex>
#include <vector>

#include "device/stream.h"

namespace tfm::cuda {

// Throws OutOfMemory (device/memory.h) that tells what the device has.
[[noreturn]] void fail_for_memory(const std::string& wanted);

// Throws Error(environment) that names the call's place, CUDA's name of the error and its text;
// OutOfMemory where that is it.
void check(cudaError_t status, std::source_location at = std::source_location::current());

std::vector<int> usable_devices();      // of this machine: those that this build has code for
std::string why_no_device();            // empty where there is one
std::string bus_id(int device);         // the place of a GPU in its machine
std::string version_text(int version);  // "13.0" of 13000

class Stream {
 public:
  explicit Stream(int device, device::Numerics numerics = {},
                  bool urgent = false);  // urgent: its blocks start before those of other streams
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  cudaStream_t get() const { return stream_; }
  int device() const { return device_; }
  const device::Numerics& numerics() const { return numerics_; }
  void wait();             // until all work so far is done
  bool capturing() const;  // into a CUDA graph
  // Memory for Scratch, which takes it before it allocates any; what is put on the stream later may
  // use it again.
  void set_scratch(std::span<std::byte> memory) { lent_ = memory; }
  std::span<std::byte>& lent() { return lent_; }
  // A caller's object that lives as long as the stream; made of it at the first call.
  template <class T>
  T& own() {
    std::shared_ptr<void>& place = owned_[typeid(T)];
    if (!place) place = std::make_shared<T>(*this);
    return *static_cast<T*>(place.get());
  }

 private:
  int device_;
  device::Numerics numerics_;
  cudaStream_t stream_ = nullptr;
  std::span<std::byte> lent_;  // what is left of it
  std::map<std::type_index, std::shared_ptr<void>> owned_;
};

}  // namespace tfm::cuda
