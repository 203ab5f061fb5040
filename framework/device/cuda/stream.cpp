#include "device/cuda/stream.h"

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
}
Stream::~Stream() { cudaStreamDestroy(stream_); }
void Stream::wait() { check(cudaStreamSynchronize(stream_)); }

}  // namespace tfm::cuda
