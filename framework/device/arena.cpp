#include "device/arena.h"

#include <sys/mman.h>

#include <cstring>

#include "core/error.h"

namespace tfm {

void MemoryPlan::add(const std::string& category, std::int64_t bytes) { categories[category] += round_up(bytes, kAlignment); }

std::int64_t MemoryPlan::total() const {
  std::int64_t sum = 0;
  for (const auto& [name, bytes] : categories) sum += bytes;
  return sum;
}

Arena::Arena(std::int64_t bytes) : capacity_(bytes) {
  const auto length = static_cast<std::size_t>(round_up(bytes > 0 ? bytes : 1, std::int64_t{2} << 20));
  void* p = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    throw Error(ExitCode::environment, "cannot reserve " + std::to_string(bytes) +
                                           " bytes of memory; a smaller micro_batch_size, recompute: full or more ranks need less");
  madvise(p, length, MADV_HUGEPAGE);
  memory_ = {static_cast<std::byte*>(p), [length](std::byte* q) { munmap(q, length); }};
}

Arena::Arena(std::span<std::byte> memory) : memory_(memory.data(), [](std::byte*) {}), capacity_(std::ssize(memory)) {
  std::memset(memory.data(), 0, memory.size());
}

std::byte* Arena::take(const std::string& category, std::int64_t bytes) {
  TFM_CHECK(bytes >= 0 && used_ + round_up(bytes, kAlignment) <= capacity_, "the memory plan is too small for " + category);
  std::byte* p = memory_.get() + used_;
  used_ += round_up(bytes, kAlignment);
  taken_.add(category, bytes);
  return p;
}

}  // namespace tfm
