#include "device/cuda/stream.h"

#include <cstdint>
#include <limits>
#include <string>

#include "core/error.h"
#include "device/cuda/blas.h"

namespace tfm::cuda {

void check(cudaError_t status, std::source_location at) {
  if (status == cudaSuccess) return;
  throw Error(ExitCode::environment, std::string(at.file_name()) + ":" + std::to_string(at.line()) + ": CUDA reports " + cudaGetErrorName(status) +
                                         ": " + cudaGetErrorString(status));
}

Stream::Stream(int device, bool tf32) : device_(device), tf32_(tf32) {
  check(cudaSetDevice(device));
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  cudaMemPool_t pool;  // scratch memory of kernels is kept for the next one
  check(cudaDeviceGetDefaultMemPool(&pool, device));
  auto keep = std::numeric_limits<std::uint64_t>::max();
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
}
Stream::~Stream() {
  cudaStreamSynchronize(stream_);
  blas_.reset();
  cudaStreamDestroy(stream_);
}
void Stream::wait() { check(cudaStreamSynchronize(stream_)); }

bool Stream::capturing() const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream_, &status));
  return status != cudaStreamCaptureStatusNone;
}

Blas& Stream::blas() {
  if (!blas_) blas_ = std::make_unique<Blas>(*this, tf32_);
  return *blas_;
}

}  // namespace tfm::cuda
