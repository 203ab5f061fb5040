#pragma once
// Memory for a short time, in the order of a stream's work.
#include <cstddef>
#include <cstdint>

#include "device/cuda/stream.h"

namespace tfm::cuda {

// For what is put on the stream in this object's lifetime; its content is undefined at first. No elements: null. Throws OutOfMemory.
template <class T> class Scratch {
 public:
  Scratch(Stream& stream, std::int64_t n) : stream_(stream) {
    if (n > 0) check(cudaMallocAsync(reinterpret_cast<void**>(&p_), static_cast<std::size_t>(n) * sizeof(T), stream.get()));
  }
  ~Scratch() {
    if (p_) cudaFreeAsync(p_, stream_.get());
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  operator T*() const { return p_; }

 private:
  Stream& stream_;
  T* p_ = nullptr;
};

}  // namespace tfm::cuda
