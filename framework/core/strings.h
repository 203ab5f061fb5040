#pragma once
// Formatting of words and values in messages, and suggestions for misspelled names.
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tfm {

// The least number of insertions, deletions, substitutions and swaps of adjacent characters that
// turn a into b.
int edit_distance(std::string_view a, std::string_view b);
// The candidate nearest to `word`, at most `limit` edits away (1, or a third of the candidate's
// letters, if that is less), or an empty string. Case is ignored, and `-` equals `_`.
std::string_view nearest(std::string_view word, const std::vector<std::string_view>& candidates,
                         int limit = 2);
std::string join(const std::vector<std::string_view>& words);  // "a, b, c"
std::string join(const std::vector<std::int64_t>& numbers);
// Control characters become spaces; text beyond `length` bytes is replaced by "...".
std::string shorten(std::string_view text, std::size_t length = 60);
std::string quoted(std::string_view text);  // shorten(text) in single quotes
std::string number_text(double x);          // shortest decimal that reads back as x
// What printf(3) would print, up to 511 bytes of it.
[[gnu::format(printf, 1, 2)]] std::string printed(const char* format, ...);
std::string counted(std::integral auto n, std::string_view noun) {  // "1 node", "2 nodes"
  return std::to_string(n).append(" ").append(noun).append(n == 1 ? "" : "s");
}
bool ends_with_any_case(std::string_view text, std::string_view end);  // `end`: ASCII, lower case
std::string hex_digits(unsigned char byte);                            // two, in lower case
std::string shell_quoted(std::string_view word);  // for sh, in single quotes where it needs them

// Untrusted text for a message: in single quotes, cut at 96 bytes, all but printable ASCII escaped
// as \xNN.
std::string in_quotes(std::string_view untrusted);
std::string errno_text();  // description of the current errno

}  // namespace tfm
