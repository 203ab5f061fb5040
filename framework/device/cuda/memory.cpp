// CUDA implementation of device/memory.h.
#include "device/memory.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "core/error.h"
#include "device/cuda/stream.h"

namespace tfm::device {
namespace {

std::atomic<std::int64_t> allocated = 0;  // bytes

std::size_t size(std::int64_t bytes) { return static_cast<std::size_t>(bytes > 0 ? bytes : 1); }

void copy(cuda::Stream& stream, void* to, const void* from, std::int64_t bytes) {
  if (bytes > 0)
    cuda::check(cudaMemcpyAsync(to, from, size(bytes), cudaMemcpyDefault, stream.get()));
}

}  // namespace

}  // namespace tfm::device

namespace tfm::cuda {

void fail_for_memory(const std::string& wanted) {
  std::size_t free = 0, total = 0;
  int device = 0;
  cudaGetLastError();  // clears it
  const bool known =
      cudaGetDevice(&device) == cudaSuccess && cudaMemGetInfo(&free, &total) == cudaSuccess;
  if (!known) cudaGetLastError();
  const auto left = static_cast<std::int64_t>(free), all = static_cast<std::int64_t>(total);
  const std::int64_t own = device::allocated,
                     others = all - left - own;  // with what libraries hold, some GB at most
  std::string text = wanted + ": device " + std::to_string(device) + " has ";
  text += known      ? std::to_string(left) + " of " + std::to_string(all) + " bytes free"
          : own == 0 ? "no memory for one more program"
                     : "no memory left";
  if (known ? others <= std::max(own, all / 8) : own > 0)
    text += "; reduce train.micro_batch_size, set recompute to full, or use more ranks";
  else
    text += (known ? ", and this program has allocated " + std::to_string(own) : "") +
            "; other programs hold it, which nvidia-smi lists, or ranks that share it: end them, "
            "choose another GPU by CUDA_VISIBLE_DEVICES, or start fewer ranks on it";
  throw device::OutOfMemory(text, left + own);
}

}  // namespace tfm::cuda

namespace tfm::device {

std::shared_ptr<std::byte> allocate(cuda::Stream& stream, std::int64_t bytes) {
  void* p = nullptr;
  cuda::check(cudaSetDevice(stream.device()));
  const cudaError_t status = cudaMalloc(&p, size(bytes));
  if (status == cudaErrorMemoryAllocation)
    cuda::fail_for_memory("cannot allocate " + std::to_string(bytes) + " bytes");
  cuda::check(status);
  allocated += bytes;
  std::shared_ptr<std::byte> memory(static_cast<std::byte*>(p), [bytes](std::byte* q) {
    cudaFree(q);
    allocated -= bytes;
  });
  cuda::check(cudaMemsetAsync(p, 0, size(bytes), stream.get()));
  return memory;
}

std::shared_ptr<std::byte> allocate_host(cuda::Stream&, std::int64_t bytes) {  // page-locked
  void* p = nullptr;
  const cudaError_t status = cudaMallocHost(&p, size(bytes));
  if (status != cudaSuccess) {
    cudaGetLastError();
    throw Error(ExitCode::environment, "cannot page-lock " + std::to_string(bytes) +
                                           " bytes of host memory: " + cudaGetErrorString(status) +
                                           "; raise `ulimit -l` or the job's memory limit");
  }
  std::shared_ptr<std::byte> memory(static_cast<std::byte*>(p),
                                    [](std::byte* q) { cudaFreeHost(q); });
  std::memset(p, 0, size(bytes));
  return memory;
}

void upload_async(cuda::Stream& stream, void* device, const void* host, std::int64_t bytes) {
  copy(stream, device, host, bytes);
}
void download_async(cuda::Stream& stream, void* host, const void* device, std::int64_t bytes) {
  copy(stream, host, device, bytes);
}
void copy_async(cuda::Stream& stream, void* to, const void* from, std::int64_t bytes) {
  copy(stream, to, from, bytes);
}
void upload(cuda::Stream& stream, void* device, const void* host, std::int64_t bytes) {
  copy(stream, device, host, bytes);
  stream.wait();
}
void download(cuda::Stream& stream, void* host, const void* device, std::int64_t bytes) {
  copy(stream, host, device, bytes);
  stream.wait();
}
void set_scratch(cuda::Stream& stream, std::span<std::byte> memory) {
  void* start = memory.data();
  std::size_t bytes = memory.size();
  if (!std::align(static_cast<std::size_t>(scratch_piece(1)), 1, start, bytes)) bytes = 0;
  stream.set_scratch({static_cast<std::byte*>(start), bytes});
}
void wait(cuda::Stream& stream) { stream.wait(); }

}  // namespace tfm::device
