#pragma once
// Device memory of a stream's kernels, and copies between it and host memory. Functions are
// overloaded on the stream type, as kernels are.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/error.h"
#include "device/stream.h"

namespace tfm::device {

// Error(environment): the device has too little free memory.
struct OutOfMemory : Error {
  OutOfMemory(const std::string& what, std::int64_t available)
      : Error(ExitCode::environment, what), available_bytes(available) {}
  // Bytes free on the device plus those that allocate() has given to this process.
  std::int64_t available_bytes;
};

// Allocates zeroed device memory. Throws OutOfMemory (CPU: Error(environment)) that says how much
// was requested and how to reduce it.
std::shared_ptr<std::byte> allocate(cpu::Stream&, std::int64_t bytes);
std::shared_ptr<std::byte> allocate(cuda::Stream&, std::int64_t bytes);

// Allocates zeroed host memory for copies to and from the device (CUDA: page-locked). Throws
// Error(environment).
std::shared_ptr<std::byte> allocate_host(cpu::Stream&, std::int64_t bytes);
std::shared_ptr<std::byte> allocate_host(cuda::Stream&, std::int64_t bytes);

// Copy in stream order and return when the copy is complete.
void upload(cpu::Stream&, void* device, const void* host, std::int64_t bytes);
void upload(cuda::Stream&, void* device, const void* host, std::int64_t bytes);
void download(cpu::Stream&, void* host, const void* device, std::int64_t bytes);
void download(cuda::Stream&, void* host, const void* device, std::int64_t bytes);

// Copy asynchronously in stream order. The host memory must come from allocate_host and must not be
// touched until wait() has returned.
void upload_async(cpu::Stream&, void* device, const void* host, std::int64_t bytes);
void upload_async(cuda::Stream&, void* device, const void* host, std::int64_t bytes);
void download_async(cpu::Stream&, void* host, const void* device, std::int64_t bytes);
void download_async(cuda::Stream&, void* host, const void* device, std::int64_t bytes);
// Copies asynchronously within device memory, in stream order.
void copy_async(cpu::Stream&, void* to, const void* from, std::int64_t bytes);
void copy_async(cuda::Stream&, void* to, const void* from, std::int64_t bytes);
// Bytes that a piece of `bytes` bytes occupies in scratch memory, including its alignment.
inline std::int64_t scratch_piece(std::int64_t bytes) { return round_up(bytes, std::int64_t{256}); }
// Lends scratch memory to the kernels of the stream; an empty span takes it back. See ScratchScope.
void set_scratch(cpu::Stream&, std::span<std::byte> memory);
void set_scratch(cuda::Stream&, std::span<std::byte> memory);
// Blocks until all work enqueued so far is complete.
void wait(cpu::Stream&);
void wait(cuda::Stream&);

inline void upload(AnyStream s, void* device, const void* host, std::int64_t bytes) {
  on(s, [&](auto& stream) { upload(stream, device, host, bytes); });
}
inline void download(AnyStream s, void* host, const void* device, std::int64_t bytes) {
  on(s, [&](auto& stream) { download(stream, host, device, bytes); });
}
inline void upload_async(AnyStream s, void* device, const void* host, std::int64_t bytes) {
  on(s, [&](auto& stream) { upload_async(stream, device, host, bytes); });
}
inline void download_async(AnyStream s, void* host, const void* device, std::int64_t bytes) {
  on(s, [&](auto& stream) { download_async(stream, host, device, bytes); });
}
inline void copy_async(AnyStream s, void* to, const void* from, std::int64_t bytes) {
  on(s, [&](auto& stream) { copy_async(stream, to, from, bytes); });
}
inline void wait(AnyStream s) {
  on(s, [](auto& stream) { wait(stream); });
}
// Lends scratch memory to the work that is enqueued on the stream in this object's lifetime.
class ScratchScope {
 public:
  ScratchScope(AnyStream stream, std::span<std::byte> memory) : stream_(stream) { give(memory); }
  ~ScratchScope() { give({}); }
  ScratchScope(const ScratchScope&) = delete;
  ScratchScope& operator=(const ScratchScope&) = delete;

 private:
  void give(std::span<std::byte> memory) {
    on(stream_, [&](auto& s) { set_scratch(s, memory); });
  }
  AnyStream stream_;
};

template <class T>
T download_value(AnyStream s, const T* device) {
  T value;
  download(s, &value, device, sizeof value);
  return value;
}

}  // namespace tfm::device
