#pragma once
// A CUDA stream, and how a failed call of the runtime becomes an Error.
#include <cuda_runtime.h>

#include <map>
#include <memory>
#include <source_location>
#include <string>
#include <typeindex>

namespace tfm::cuda {

// Throws Error(environment) that names the call's place, CUDA's name of the error and its text.
void check(cudaError_t status, std::source_location at = std::source_location::current());

int device_count();             // 0 where there is none that this build can use
std::string why_no_device();    // empty where there is one
std::string bus_id(int device);  // the place of a GPU in its machine

class Stream {
 public:
  // tf32: products of floats may round their factors to 10 bits of fraction.
  explicit Stream(int device, bool tf32 = false);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  cudaStream_t get() const { return stream_; }
  int device() const { return device_; }
  bool tf32() const { return tf32_; }
  void wait();             // until all work so far is done
  bool capturing() const;  // into a CUDA graph
  // A caller's object that lives as long as the stream; made of it at the first call.
  template <class T> T& own() {
    std::shared_ptr<void>& place = owned_[typeid(T)];
    if (!place) place = std::make_shared<T>(*this);
    return *static_cast<T*>(place.get());
  }

 private:
  int device_;
  bool tf32_;
  cudaStream_t stream_ = nullptr;
  std::map<std::type_index, std::shared_ptr<void>> owned_;
};

}  // namespace tfm::cuda
