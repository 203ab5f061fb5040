#include "device/arena.h"

#include "core/error.h"

namespace tfm::device {

void MemoryPlan::add(const std::string& category, std::int64_t bytes) {
  categories[category] += round_up(bytes, kAlignment);
}

std::int64_t MemoryPlan::total() const {
  std::int64_t sum = 0;
  for (const auto& [name, bytes] : categories) sum += bytes;
  return sum;
}

Arena::Arena(std::shared_ptr<std::byte> zeroed, std::int64_t bytes)
    : counts_only_(false), memory_(std::move(zeroed)), capacity_(bytes) {}

std::byte* Arena::take(const std::string& category, std::int64_t bytes) {
  TFM_CHECK(bytes >= 0 && (counts_only_ || used_ + round_up(bytes, kAlignment) <= capacity_),
            "the memory plan is too small for " + category);
  std::byte* p = counts_only_ ? nullptr : memory_.get() + used_;
  used_ += round_up(bytes, kAlignment);
  taken_.add(category, bytes);
  return p;
}

}  // namespace tfm::device
