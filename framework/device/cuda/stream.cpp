#include "device/cuda/stream.h"

#include <cstdint>
#include <string>

#include "core/error.h"

namespace tfm::cuda {

void check(cudaError_t status, std::source_location at) {
  if (status == cudaSuccess) return;
  throw Error(ExitCode::environment, std::string(at.file_name()) + ":" + std::to_string(at.line()) + ": CUDA reports " + cudaGetErrorName(status) +
                                         ": " + cudaGetErrorString(status));
}

Stream::Stream(int device) : device_(device) {
  check(cudaSetDevice(device));
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  cudaMemPool_t pool = nullptr;  // of cudaMallocAsync: keep what is freed
  std::uint64_t keep = UINT64_MAX;
  check(cudaDeviceGetDefaultMemPool(&pool, device));
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
}
Stream::~Stream() { cudaStreamDestroy(stream_); }
void Stream::wait() { check(cudaStreamSynchronize(stream_)); }

}  // namespace tfm::cuda
