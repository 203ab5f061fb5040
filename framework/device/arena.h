#pragma once
// One allocation that holds everything a run needs, handed out as named ranges; the sizes are known
// before (see MemoryPlan).
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace tfm::device {

inline constexpr std::int64_t kAlignment = 64;  // bytes; start of every range

// Bytes by category, filled without allocating anything.
struct MemoryPlan {
  std::map<std::string, std::int64_t> categories;
  void add(const std::string& category, std::int64_t bytes);  // rounded up to kAlignment
  std::int64_t total() const;
};

class Arena {
 public:
  Arena(std::shared_ptr<std::byte> zeroed, std::int64_t bytes);
  // A zeroed range. Throws where the plan was too small.
  std::byte* take(const std::string& category, std::int64_t bytes);
  std::int64_t capacity() const { return capacity_; }
  std::int64_t high_water() const { return used_; }
  const MemoryPlan& taken() const { return taken_; }

 private:
  std::shared_ptr<std::byte> memory_;
  std::int64_t capacity_ = 0, used_ = 0;
  MemoryPlan taken_;
};

}  // namespace tfm::device
