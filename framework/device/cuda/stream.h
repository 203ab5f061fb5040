#pragma once
// A CUDA stream, and how a failed call of the runtime becomes an Error.
#include <cuda_runtime.h>

#include <source_location>

namespace tfm::cuda {

// Throws Error(environment) that names the call's place, CUDA's name of the error and its text.
void check(cudaError_t status, std::source_location at = std::source_location::current());

class Stream {
 public:
  explicit Stream(int device);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  cudaStream_t get() const { return stream_; }
  int device() const { return device_; }
  void wait();  // until all work so far is done

 private:
  int device_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace tfm::cuda
