#pragma once
// Regular expressions of tokenizer files, matched by PCRE2. The files are written for Oniguruma
// (Ruby's syntax); what the two read differently is rewritten (\s \w \h \v) or refused: set
// intersections, sets inside sets, rare escapes.
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace tfm::text {

class Regex {
 public:
  // Throws Error(input) that starts with `where` for a pattern that does not compile or is refused.
  Regex(const std::string& pattern, const std::string& where);
  // Matched only at the place where the last match ended.
  static Regex anchored(const std::string& pattern);
  ~Regex();
  Regex(Regex&&) noexcept;

  // Calls sink(begin, end) for the matches that do not overlap, from the left; an empty match is
  // passed over. The text is well-formed UTF-8. Throws Error(input) where the pattern takes too
  // many steps on this text.
  void find_all(std::string_view text,
                const std::function<void(std::size_t, std::size_t)>& sink) const;

 private:
  struct Code;
  explicit Regex(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

// The pattern as PCRE2, which may know an older Unicode, must read it to mean what Oniguruma means.
// Throws Error(input) that starts with `where`.
std::string pcre2_pattern(std::string_view oniguruma, const std::string& where);

}  // namespace tfm::text
