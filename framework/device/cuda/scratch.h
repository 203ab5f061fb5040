#pragma once
// Temporary device memory in stream order.
#include <cstddef>
#include <cstdint>

#include "device/cuda/stream.h"
#include "device/memory.h"

namespace tfm::cuda {

// Uninitialized memory of n elements for the work enqueued on the stream in this object's lifetime;
// null if n <= 0. Taken from the memory lent to the stream, or allocated if that is too small.
// Objects on one stream must be destroyed in reverse order. Throws OutOfMemory.
template <class T>
class Scratch {
 public:
  Scratch(Stream& stream, std::int64_t n)
      : stream_(stream),
        bytes_(static_cast<std::size_t>(
            device::scratch_piece(n * static_cast<std::int64_t>(sizeof(T))))) {
    if (n <= 0) return;
    std::span<std::byte>& lent = stream.lent();
    borrowed_ = bytes_ <= lent.size();
    if (borrowed_)
      p_ = reinterpret_cast<T*>(lent.data()), lent = lent.subspan(bytes_);
    else
      check(cudaMallocAsync(reinterpret_cast<void**>(&p_), bytes_, stream.get()));
  }
  ~Scratch() {
    if (!p_) return;
    if (borrowed_)
      stream_.lent() = {reinterpret_cast<std::byte*>(p_), stream_.lent().size() + bytes_};
    else
      cudaFreeAsync(p_, stream_.get());
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  operator T*() const { return p_; }

 private:
  Stream& stream_;
  T* p_ = nullptr;
  std::size_t bytes_;
  bool borrowed_ = false;
};

}  // namespace tfm::cuda
