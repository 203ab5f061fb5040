#pragma once
// Tokenizer files are written for Oniguruma (Ruby's syntax). What PCRE2 reads differently is
// rewritten (\s \w \h \v, options, {,m}, {n}+) or refused: set intersections, sets inside sets,
// rare escapes.
#include <string>
#include <string_view>

namespace tfm::text {

// The pattern in PCRE2's syntax with Oniguruma's meaning, also if PCRE2 knows an older Unicode.
// Error(input) starts with `where`.
std::string pcre2_pattern(std::string_view oniguruma, const std::string& where);

}  // namespace tfm::text
