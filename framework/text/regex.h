#pragma once
// Regular expressions of tokenizer files, matched by PCRE2.
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace tfm::text {

class Regex {
 public:
  // Error(input), which starts with `where`, for a pattern that does not compile or is refused.
  Regex(const std::string& pattern, const std::string& where);
  // A pattern that matches only where the last match ended.
  static Regex anchored(const std::string& pattern);
  ~Regex();
  Regex(Regex&&) noexcept;

  // Calls sink(begin, end) for each match from the left, without overlaps. An empty match right
  // after a match is skipped, as in the library; the empty text has none. `text`: well-formed
  // UTF-8. Error(input) if the pattern takes too many steps on it.
  void find_all(std::string_view text,
                const std::function<void(std::size_t, std::size_t)>& sink) const;

 private:
  struct Code;
  explicit Regex(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

}  // namespace tfm::text
