#pragma once
// An allocation that holds memory of a run, handed out as ranges by category. Its size is
// computed beforehand by running the code that takes the ranges on an arena that only counts.
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

namespace tfm::device {

inline constexpr std::int64_t kAlignment = 64;  // of every range, in bytes

// Bytes of memory by category.
struct MemoryPlan {
  std::map<std::string, std::int64_t> categories;
  void add(const std::string& category, std::int64_t bytes);  // rounded up to kAlignment
  std::int64_t total() const;
};

class Arena {
 public:
  // An arena that only counts: it has no memory and no limit, and hands out null.
  Arena() = default;
  // An arena over `bytes` bytes of zeroed memory, which it keeps alive.
  Arena(std::shared_ptr<std::byte> zeroed, std::int64_t bytes);
  // Hands out a zeroed range. An internal error if it exceeds the capacity.
  std::byte* take(const std::string& category, std::int64_t bytes);
  template <class T>
  std::span<T> take_span(const std::string& category, std::int64_t elements) {
    std::byte* p = take(category, elements * static_cast<std::int64_t>(sizeof(T)));
    if (counts_only_) return {};
    return {reinterpret_cast<T*>(p), static_cast<std::size_t>(elements)};
  }
  std::int64_t capacity() const { return capacity_; }
  std::int64_t high_water() const { return used_; }
  const MemoryPlan& taken() const { return taken_; }

 private:
  bool counts_only_ = true;
  std::shared_ptr<std::byte> memory_;
  std::int64_t capacity_ = 0, used_ = 0;
  MemoryPlan taken_;
};

}  // namespace tfm::device
