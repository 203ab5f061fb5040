#pragma once
// Devices, their memory, and copies in a stream's order.
#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/cuda/stream.h"

namespace tfm::cuda {

int device_count();  // 0 where there is no driver

// Zeroed (in the stream's order), 256-byte aligned. Throws Error(environment) with the bytes wanted, free and there.
std::shared_ptr<std::byte> allocate(Stream&, std::int64_t bytes);
// Of the host, page-locked: copies to and from it do not hold up the calling thread.
std::shared_ptr<std::byte> allocate_pinned(std::int64_t bytes);

// Between any two of host and device; `from` must keep its content, and a pinned `to` must not be read, before Stream::wait.
void copy(Stream&, void* to, const void* from, std::int64_t bytes);

}  // namespace tfm::cuda
