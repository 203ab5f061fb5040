#include "device/memory.h"

#include <sys/mman.h>

#include <cstring>
#include <string>

#include "core/error.h"

namespace tfm::device {

std::shared_ptr<std::byte> allocate(cpu::Stream&, std::int64_t bytes) {
  const auto length =
      static_cast<std::size_t>(round_up(bytes > 0 ? bytes : 1, std::int64_t{2} << 20));
  void* p = mmap(nullptr, length, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    throw Error(ExitCode::environment, "cannot reserve " + std::to_string(bytes) +
                                           " bytes of memory; reduce train.micro_batch_size, set "
                                           "recompute to full, or use more ranks");
  madvise(p, length, MADV_HUGEPAGE);
  return {static_cast<std::byte*>(p), [length](std::byte* q) { munmap(q, length); }};
}
std::shared_ptr<std::byte> allocate_host(cpu::Stream& stream, std::int64_t bytes) {
  return allocate(stream, bytes);
}

void upload(cpu::Stream&, void* device, const void* host, std::int64_t bytes) {
  if (device != host) std::memcpy(device, host, static_cast<std::size_t>(bytes));
}
void download(cpu::Stream&, void* host, const void* device, std::int64_t bytes) {
  if (device != host) std::memcpy(host, device, static_cast<std::size_t>(bytes));
}
void upload_async(cpu::Stream& stream, void* device, const void* host, std::int64_t bytes) {
  upload(stream, device, host, bytes);
}
void download_async(cpu::Stream& stream, void* host, const void* device, std::int64_t bytes) {
  download(stream, host, device, bytes);
}
void copy_async(cpu::Stream&, void* to, const void* from, std::int64_t bytes) {
  std::memmove(to, from, static_cast<std::size_t>(bytes));
}
void set_scratch(cpu::Stream&, std::span<std::byte>) {}
void wait(cpu::Stream&) {}

}  // namespace tfm::device
