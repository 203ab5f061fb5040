#include "device/cuda/stream.h"

#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "core/error.h"
#include "core/strings.h"

namespace tfm::cuda {

void check(cudaError_t status, std::source_location at) {
  if (status == cudaSuccess) return;
  const std::string what = std::string(at.file_name()) + ":" + std::to_string(at.line()) +
                           ": CUDA reports " + cudaGetErrorName(status) + ": " +
                           cudaGetErrorString(status);
  if (status == cudaErrorMemoryAllocation) fail_for_memory(what);
  throw Error(ExitCode::environment, what);
}

namespace {

#ifndef TFM_CUDA_ARCHITECTURES  // framework/cmake/cuda.cmake
#define TFM_CUDA_ARCHITECTURES "80"
#endif

int capability(int device) {  // 75 of 7.5
  int major = 0, minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return 10 * major + minor;
}
std::string capability_text(int of) {
  return std::to_string(of / 10) + "." + std::to_string(of % 10);
}

}  // namespace

bool has_code_for(int capability, const std::string& architectures) {
  std::istringstream all(architectures);
  for (std::string one; all >> one;) {
    const int least = std::atoi(one.c_str());
    if (least == 0) return true;                       // native, all, all-major
    const bool alone = one.find('a') < one.find('-'),  // of 90a, not of 90-real
        newer = !one.ends_with("-real") && one.find('f') == std::string::npos;
    if (alone ? capability == least
              : capability >= least && (newer || capability / 10 == least / 10))
      return true;
  }
  return false;
}

std::vector<int> usable_devices() {
  int n = 0;
  std::vector<int> usable;
  if (cudaGetDeviceCount(&n) == cudaSuccess)
    for (int i = 0; i < n; ++i)
      if (has_code_for(capability(i), TFM_CUDA_ARCHITECTURES)) usable.push_back(i);
  cudaGetLastError();  // clears it
  return usable;
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string why_no_device() {
  int n = 0, driver = 0;
  const cudaError_t status = cudaGetDeviceCount(&n);
  cudaGetLastError();
  if (status == cudaSuccess && n == 0) return "this machine has no GPU";
  if (status == cudaSuccess)
    return !usable_devices().empty()
               ? ""
               : "this machine's GPU has compute capability " + capability_text(capability(0)) +
                     ", for which this build has no code "
                     "(CMAKE_CUDA_ARCHITECTURES: " TFM_CUDA_ARCHITECTURES ")";
  if (status == cudaErrorInsufficientDriver && cudaDriverGetVersion(&driver) == cudaSuccess)
    return driver == 0 ? "this machine has no GPU driver"
                       : "the driver supports CUDA " + version_text(driver) + ", but CUDA " +
                             version_text(CUDART_VERSION) + " is required";
  return std::string("CUDA reports ") + cudaGetErrorName(status) + ": " +
         cudaGetErrorString(status);
}

std::string why_unusable() {
  int n = 0, driver = 0;
  const cudaError_t status = cudaGetDeviceCount(&n);
  cudaGetLastError();
  const bool no_driver = status == cudaErrorInsufficientDriver &&
                         cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0;
  const bool none = status == cudaErrorNoDevice || (status == cudaSuccess && n == 0);
  return none || no_driver ? "" : why_no_device();
}

std::string unique_id(int device) {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device));
  std::string id = bus_id(device) + "/";
  for (const char byte : properties.uuid.bytes) id += hex_digits(static_cast<unsigned char>(byte));
  return id;
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
