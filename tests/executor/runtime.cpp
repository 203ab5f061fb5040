// The stand-ins of the CUDA runtime and of device/cuda/stream.cpp.
#include <cstring>

#include "executor.h"
#include "device/cuda/stream.h"
#include "device/memory.h"

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
class Blas {};
Stream::Stream(int device, bool tf32) : device_(device), tf32_(tf32) {}
Stream::~Stream() = default;
void Stream::wait() {}
}  // namespace tfm::cuda

namespace tfm {
std::shared_ptr<std::byte> allocate(cuda::Stream&, std::int64_t bytes) {
  auto* p = static_cast<std::byte*>(executor::allocate(static_cast<std::size_t>(bytes), "arena"));
  std::memset(p, 0, static_cast<std::size_t>(bytes));
  return {p, [](std::byte* q) { executor::release(q); }};
}
std::shared_ptr<std::byte> allocate_host(cuda::Stream&, std::int64_t bytes) {
  return {new std::byte[static_cast<std::size_t>(bytes)](), std::default_delete<std::byte[]>()};
}
void upload(cuda::Stream&, void* device, const void* host, std::int64_t bytes) { std::memcpy(device, host, static_cast<std::size_t>(bytes)); }
void download(cuda::Stream&, void* host, const void* device, std::int64_t bytes) { std::memcpy(host, device, static_cast<std::size_t>(bytes)); }
}  // namespace tfm
