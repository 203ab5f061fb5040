#pragma once
// Properties and normal forms of code points, from utf8proc. Where a comment names a version of
// Unicode, code points added later count as unassigned, as in the tables of the `tokenizers`
// library. White space is Unicode's White_Space. Texts are well-formed UTF-8 unless stated
// otherwise.
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace tfm::text {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

std::string normal_form(std::string_view text, NormalForm form);  // Unicode 9.0

// `bytes` with every maximal ill-formed part replaced by U+FFFD, as by Python's
// bytes.decode(errors="replace").
std::string well_formed(std::string_view bytes);

struct CodePoint {
  std::uint32_t value;
  std::size_t bytes;
};
CodePoint first_code_point(std::string_view text);  // of a non-empty text
CodePoint last_code_point(std::string_view text);
void append_utf8(std::string& text, std::uint32_t code_point);
std::size_t count_code_points(std::string_view text);

bool is_white_space(std::uint32_t c);
// `text` without the white space at its ends.
std::string_view stripped(std::string_view text, bool left = true, bool right = true);
bool is_nonspacing_mark(std::uint32_t c);  // Mn of Unicode 8.0
bool is_mark(std::uint32_t c);             // M of 9.0
bool is_other(std::uint32_t c);            // Cc, Cf, Cs, Co of 8.0
bool is_punctuation(std::uint32_t c);      // P of 8.0
bool is_number(std::uint32_t c);           // N of 17.0
// Alphabetic, mark, decimal digit, connector punctuation or join control, of 16.0.
bool is_word(std::uint32_t c);
void append_lower_case(std::string& text, std::uint32_t c);

// The code points that general categories ("L", "Lu"), scripts or "Assigned" have gained from
// Unicode 14.0 to 16.0, as parts of a set in a regular expression: \x{10D40}-\x{10D49}...
std::string newer_code_points(std::initializer_list<std::string_view> properties);

// Bytes of the extended grapheme cluster (UAX #29) at the start of a non-empty text.
std::size_t grapheme_length(std::string_view text);

}  // namespace tfm::text
