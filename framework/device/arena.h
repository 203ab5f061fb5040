#pragma once
// One allocation that holds everything a run needs, handed out as named ranges. Its size is known
// before: what takes the memory runs once with an arena that only counts.
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

namespace tfm::device {

inline constexpr std::int64_t kAlignment = 64;  // bytes; start of every range

// Bytes by category.
struct MemoryPlan {
  std::map<std::string, std::int64_t> categories;
  void add(const std::string& category, std::int64_t bytes);  // rounded up to kAlignment
  std::int64_t total() const;
};

class Arena {
 public:
  Arena() = default;  // has no memory and no limit: counts what is taken, and hands out null
  Arena(std::shared_ptr<std::byte> zeroed, std::int64_t bytes);
  // A zeroed range. Throws where the plan was too small.
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
