#pragma once
// Memory where a stream's kernels read and write, and copies from and to the host's. Overloads on
// the stream type, as kernels are.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/error.h"
#include "device/stream.h"

namespace tfm::device {

struct OutOfMemory : Error {  // of code environment
  OutOfMemory(const std::string& what, std::int64_t available)
      : Error(ExitCode::environment, what), available_bytes(available) {}
  std::int64_t available_bytes;  // what the device has free, and what `allocate` gave this process
};

// Zero-initialized. OutOfMemory (on a host Error(environment)) says how much was requested and how
// to reduce it.
std::shared_ptr<std::byte> allocate(cpu::Stream&, std::int64_t bytes);
std::shared_ptr<std::byte> allocate(cuda::Stream&, std::int64_t bytes);

// Of the host, for data that is copied from and to the device; zeroed, too.
std::shared_ptr<std::byte> allocate_host(cpu::Stream&, std::int64_t bytes);
std::shared_ptr<std::byte> allocate_host(cuda::Stream&, std::int64_t bytes);

// In the order of the stream's work; the host's memory may be used again when they return.
void upload(cpu::Stream&, void* device, const void* host, std::int64_t bytes);
void upload(cuda::Stream&, void* device, const void* host, std::int64_t bytes);
void download(cpu::Stream&, void* host, const void* device, std::int64_t bytes);
void download(cuda::Stream&, void* host, const void* device, std::int64_t bytes);

// Asynchronous: the host memory, from allocate_host, must not be touched until `wait` has returned.
void upload_async(cpu::Stream&, void* device, const void* host, std::int64_t bytes);
void upload_async(cuda::Stream&, void* device, const void* host, std::int64_t bytes);
void download_async(cpu::Stream&, void* host, const void* device, std::int64_t bytes);
void download_async(cuda::Stream&, void* host, const void* device, std::int64_t bytes);
// Within the device's memory, in the order of the stream's work.
void copy_async(cpu::Stream&, void* to, const void* from, std::int64_t bytes);
void copy_async(cuda::Stream&, void* to, const void* from, std::int64_t bytes);
// Bytes of memory that a piece of scratch memory of so many takes.
inline std::int64_t scratch_piece(std::int64_t bytes) { return round_up(bytes, std::int64_t{256}); }
// Scratch memory for kernels, until nothing is lent; see ScratchScope.
void set_scratch(cpu::Stream&, std::span<std::byte> memory);
void set_scratch(cuda::Stream&, std::span<std::byte> memory);
void wait(cpu::Stream&);  // until all work so far is done
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
// Scratch memory for what is put on the stream in this object's lifetime.
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
