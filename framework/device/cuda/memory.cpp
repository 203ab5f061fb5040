#include "device/cuda/memory.h"

#include <string>

#include "core/error.h"

namespace tfm::cuda {
namespace {

std::size_t size(std::int64_t bytes) { return static_cast<std::size_t>(bytes > 0 ? bytes : 1); }

}  // namespace

int device_count() {
  int n = 0;
  if (cudaGetDeviceCount(&n) == cudaSuccess) return n;
  cudaGetLastError();  // clears it
  return 0;
}

std::shared_ptr<std::byte> allocate(Stream& stream, std::int64_t bytes) {
  void* p = nullptr;
  check(cudaSetDevice(stream.device()));
  const cudaError_t status = cudaMalloc(&p, size(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total));
    throw Error(ExitCode::environment, "device " + std::to_string(stream.device()) + " has " + std::to_string(free) + " of its " +
                                           std::to_string(total) + " bytes free, " + std::to_string(bytes) +
                                           " are wanted; a smaller micro_batch_size, recompute: full or more ranks need less");
  }
  check(status);
  std::shared_ptr<std::byte> memory(static_cast<std::byte*>(p), [](std::byte* q) { cudaFree(q); });
  check(cudaMemsetAsync(p, 0, size(bytes), stream.get()));
  return memory;
}

std::shared_ptr<std::byte> allocate_pinned(std::int64_t bytes) {
  void* p = nullptr;
  const cudaError_t status = cudaMallocHost(&p, size(bytes));
  if (status != cudaSuccess) {
    cudaGetLastError();
    throw Error(ExitCode::environment, "cannot lock " + std::to_string(bytes) + " bytes of host memory: " + cudaGetErrorString(status) +
                                           "; `ulimit -l` or the memory limit of the job may be too low");
  }
  return {static_cast<std::byte*>(p), [](std::byte* q) { cudaFreeHost(q); }};
}

void copy(Stream& stream, void* to, const void* from, std::int64_t bytes) {
  if (bytes > 0) check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream.get()));
}

}  // namespace tfm::cuda
