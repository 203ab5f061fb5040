// The stand-ins of the CUDA runtime and of device/cuda/stream.cpp.
#include <cstring>

#include "executor.h"
#include "device/cuda/stream.h"

cudaError_t cudaMallocAsync(void** p, std::size_t bytes, cudaStream_t) {
  *p = tfm::executor::allocate(bytes, "scratch");
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* p, cudaStream_t) {
  tfm::executor::release(p);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* p, int byte, std::size_t bytes, cudaStream_t) {
  std::memset(p, byte, bytes);
  return cudaSuccess;
}

namespace tfm::cuda {
void check(cudaError_t, std::source_location) {}
Stream::Stream(int device) : device_(device) {}
Stream::~Stream() = default;
void Stream::wait() {}
}  // namespace tfm::cuda
