#pragma once
// Regular expressions of tokenizer files, matched by PCRE2. The files are written for Oniguruma
// (Ruby's syntax). What the two read differently is rewritten (\s \w \h \v) or refused: set
// intersections, sets inside sets, rare escapes.
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

  // Calls sink(begin, end) for each match from the left, without overlaps; empty matches are
  // skipped. `text`: well-formed UTF-8. Error(input) if the pattern takes too many steps on it.
  void find_all(std::string_view text,
                const std::function<void(std::size_t, std::size_t)>& sink) const;

 private:
  struct Code;
  explicit Regex(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

// The pattern in PCRE2's syntax with Oniguruma's meaning, also if PCRE2 knows an older Unicode.
// Error(input) starts with `where`.
std::string pcre2_pattern(std::string_view oniguruma, const std::string& where);

}  // namespace tfm::text
