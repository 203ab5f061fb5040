#pragma once
// Words and values as messages show them, and the nearest known name for a misspelled one.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tfm {

// The fewest insertions, deletions, substitutions and swaps of neighbors that turn a into b.
int edit_distance(std::string_view a, std::string_view b);
// The candidate nearest to `word` within `limit` edits (1 for words of three letters or fewer);
// empty: none. Case and `-` against
// `_` do not count.
std::string_view nearest(std::string_view word, const std::vector<std::string_view>& candidates,
                         int limit = 2);
std::string join(const std::vector<std::string_view>& words);  // "a, b, c"
std::string join(const std::vector<std::int64_t>& numbers);
std::string shorten(std::string_view text,
                    std::size_t length = 60);  // for messages: printable, cut with "..."
std::string quoted(std::string_view text);     // the same in single quotes
std::string number_text(double x);             // shortest decimal that reads back to x

// A string from outside made fit for a message: quoted, other than printable ASCII escaped, cut at
// 96 bytes.
std::string in_quotes(std::string_view untrusted);
std::string errno_text();  // text of errno

}  // namespace tfm
