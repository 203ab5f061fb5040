#pragma once
// A CUDA stream, and conversion of CUDA runtime errors to exceptions.
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

// Throws OutOfMemory (device/memory.h) with `wanted` and the memory that the device has.
[[noreturn]] void fail_for_memory(const std::string& wanted);

// Throws Error(environment) with the source location and the name and text of the CUDA error, or
// OutOfMemory if memory ran out.
void check(cudaError_t status, std::source_location at = std::source_location::current());

// Whether a build for `architectures`, as CMake names them ("80 90a-real"), has code for a GPU of
// `capability` (75 of 7.5): machine code runs on GPUs of its major version from its minor version
// on, that of 90a on 9.0 alone; drivers compile what is not only machine code (-real) for newer
// ones, too.
bool has_code_for(int capability, const std::string& architectures);
std::vector<int> usable_devices();  // CUDA indices of the GPUs that this build has code for
std::string why_no_device();        // why there is no usable GPU; empty if there is one
// Why GPUs that are there cannot be used; empty if there are none, or some can.
std::string why_unusable();
std::string bus_id(int device);         // PCI bus id
std::string unique_id(int device);      // also of an instance of a GPU that is divided (MIG)
std::string version_text(int version);  // "13.0" for 13000

class Stream {
 public:
  // urgent: the stream has the highest priority.
  explicit Stream(int device, device::Numerics numerics = {}, bool urgent = false);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  cudaStream_t get() const { return stream_; }
  int device() const { return device_; }
  const device::Numerics& numerics() const { return numerics_; }
  void wait();             // blocks until all work enqueued so far is complete
  bool capturing() const;  // whether a CUDA graph is being captured
  // Lends memory to Scratch, which allocates only if it is too small. Work enqueued later may reuse
  // the memory.
  void set_scratch(std::span<std::byte> memory) { lent_ = memory; }
  std::span<std::byte>& lent() { return lent_; }
  // The stream's object of type T, which lives as long as the stream. The first call constructs it
  // with the stream.
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
  std::span<std::byte> lent_;  // the part of the lent memory that is free
  std::map<std::type_index, std::shared_ptr<void>> owned_;
};

}  // namespace tfm::cuda
