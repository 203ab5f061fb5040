#include "device/cuda/stream.h"

#include <cstdint>
#include <string>

#include "core/error.h"

namespace tfm::cuda {

void check(cudaError_t status, std::source_location at) {
  if (status == cudaSuccess) return;
  const std::string what = std::string(at.file_name()) + ":" + std::to_string(at.line()) +
                           ": CUDA reports " + cudaGetErrorName(status) + ": " +
                           cudaGetErrorString(status);
  if (status == cudaErrorMemoryAllocation) fail_for_memory(what);
  throw Error(ExitCode::environment, what);
}

int device_count() {
  int n = 0;
  if (cudaGetDeviceCount(&n) == cudaSuccess) return n;
  cudaGetLastError();  // clears it
  return 0;
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string why_no_device() {
  int n = 0, driver = 0;
  const cudaError_t status = cudaGetDeviceCount(&n);
  cudaGetLastError();
  if (status == cudaSuccess) return n > 0 ? "" : "this machine has no GPU";
  if (status == cudaErrorInsufficientDriver && cudaDriverGetVersion(&driver) == cudaSuccess)
    return driver == 0 ? "this machine has no GPU driver"
                       : "the driver supports CUDA " + version_text(driver) + ", but CUDA " +
                             version_text(CUDART_VERSION) + " is required";
  return std::string("CUDA reports ") + cudaGetErrorName(status) + ": " +
         cudaGetErrorString(status);
}

std::string bus_id(int device) {
  char id[32] = "";
  check(cudaDeviceGetPCIBusId(id, sizeof id, device));
  return id;
}

Stream::Stream(int device, device::Numerics numerics, bool urgent)
    : device_(device), numerics_(numerics) {
  check(cudaSetDevice(device));
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, urgent ? greatest : least));
  cudaMemPool_t pool = nullptr;  // of cudaMallocAsync: keeps freed memory
  std::uint64_t keep = UINT64_MAX;
  check(cudaDeviceGetDefaultMemPool(&pool, device));
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
}
Stream::~Stream() {
  cudaStreamSynchronize(stream_);
  owned_.clear();
  cudaStreamDestroy(stream_);
}
void Stream::wait() { check(cudaStreamSynchronize(stream_)); }

bool Stream::capturing() const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream_, &status));
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace tfm::cuda
