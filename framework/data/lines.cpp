#include "data/lines.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace tfm::data {

bool Lines::next() {
  std::size_t end;
  for (std::size_t seen = at_; (end = held_.find('\n', seen)) == held_.npos && more();)
    seen = held_.size() - last_read_;
  if (end == held_.npos) end = held_.size();
  if (at_ == held_.size()) return false;
  line_ = std::string_view(held_).substr(at_, end - at_);
  if (line_.ends_with('\r')) line_.remove_suffix(1);
  at_ = std::min(end + 1, held_.size());
  ++number_;
  return true;
}

std::int64_t Lines::count_all() {
  while (next()) {
  }
  return number_;
}

// Appends the next block of the file to the incomplete line; false at the end of the file.
bool Lines::more() {
  constexpr std::size_t block = std::size_t{1} << 20, longest = std::size_t{256} << 20;
  held_.erase(0, std::exchange(at_, 0));
  if (held_.size() > longest)
    throw Error(ExitCode::input, path_ + ":" + std::to_string(number_ + 1) + ": the line exceeds " +
                                     std::to_string(longest) + " bytes");
  const std::size_t before = held_.size();
  held_.resize(before + block);
  last_read_ = file_.read(held_.data() + before, block);
  held_.resize(before + last_read_);
  return last_read_ > 0;
}

}  // namespace tfm::data
