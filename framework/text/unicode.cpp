#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "core/error.h"
#include "core/strings.h"
#include "core/utf8.h"

namespace tfm::text {
namespace {

struct Range {
  std::uint32_t first, last;
};
struct Added {
  Range points;
  const char *category, *script;
};
#include "text/unicode_ages.inl"

template <std::size_t n>
bool in(const Range (&ranges)[n], std::uint32_t c) {
  if (c < ranges[0].first) return false;
  const Range* after = std::upper_bound(
      ranges, ranges + n, c, [](std::uint32_t value, const Range& r) { return value < r.first; });
  return after != ranges && c <= after[-1].last;
}

struct Capitals {
  Range letters;
  std::uint32_t lower;  // of the first
};
constexpr Capitals capitals_after_15[] = {
    {{0x1C89, 0x1C89}, 0x1C8A},   {{0xA7CB, 0xA7CB}, 0x264},  {{0xA7CC, 0xA7CC}, 0xA7CD},
    {{0xA7CE, 0xA7CE}, 0xA7CF},   {{0xA7D2, 0xA7D2}, 0xA7D3}, {{0xA7D4, 0xA7D4}, 0xA7D5},
    {{0xA7DA, 0xA7DA}, 0xA7DB},   {{0xA7DC, 0xA7DC}, 0x19B},  {{0x10D50, 0x10D65}, 0x10D70},
    {{0x16EA0, 0x16EB8}, 0x16EBB}};

constexpr Range marks_after_16[] = {{0x1ACF, 0x1ADD},
                                    {0x1AE0, 0x1AEB}};  // of the Basic Multilingual Plane

constexpr const char* kCategories[] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc",
                                       "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",  // as utf8proc
                                       "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So",
                                       "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};  // counts them

// The category in Unicode 16.0, even where utf8proc knows an older version only.
utf8proc_category_t category(std::uint32_t c) {
  const auto known = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  if (known != UTF8PROC_CATEGORY_CN) return known;
  const auto* row =
      std::lower_bound(std::begin(newer_than_14), std::end(newer_than_14), c,
                       [](const Added& a, std::uint32_t value) { return a.points.last < value; });
  if (row == std::end(newer_than_14) || c < row->points.first) return known;
  const auto is_of_row = [&](std::string_view name) { return name == row->category; };
  return static_cast<utf8proc_category_t>(
      std::find_if(std::begin(kCategories), std::end(kCategories), is_of_row) -
      std::begin(kCategories));
}
utf8proc_category_t category_in_8(std::uint32_t c) {
  switch (c) {  // changed since
    case 0x166D:
    case 0x111C9:
      return UTF8PROC_CATEGORY_PO;
    case 0x1734:
      return UTF8PROC_CATEGORY_MN;
    case 0x1885:
    case 0x1886:
      return UTF8PROC_CATEGORY_LO;
    case 0xA9BD:
      return UTF8PROC_CATEGORY_MC;
  }
  return in(newer_than_8, c) ? UTF8PROC_CATEGORY_CN : category(c);
}
utf8proc_category_t category_in_9(std::uint32_t c) {
  if (c == 0x1CF2 || c == 0x1CF3) return UTF8PROC_CATEGORY_MC;
  return c == 0x111C9          ? UTF8PROC_CATEGORY_PO
         : in(newer_than_9, c) ? UTF8PROC_CATEGORY_CN
                               : category(c);
}

// For code points that utf8proc and Unicode 9.0 treat alike.
void append_normal_form(std::string_view text, NormalForm form, std::string& all) {
  if (std::all_of(text.begin(), text.end(),
                  [](char c) { return static_cast<signed char>(c) >= 0; })) {
    all += text;
    return;
  }
  const bool composed = form == NormalForm::nfc || form == NormalForm::nfkc;
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  const int options = UTF8PROC_STABLE | (composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                      (compatible ? UTF8PROC_COMPAT : 0);
  utf8proc_uint8_t* out = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &out,
                                 static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(out, std::free);
  if (size < 0) internal_error(std::string("utf8proc_map: ") + utf8proc_errmsg(size));
  all.append(reinterpret_cast<const char*>(out), static_cast<std::size_t>(size));
}

// Bytes of the maximal part of a well-formed sequence that an ill-formed text starts with, at
// least 1.
std::size_t maximal_subpart(std::string_view text) {
  for (std::size_t length = std::min<std::size_t>(3, text.size()); length > 1; --length) {
    std::string tried(text.substr(0, length));
    for (const char* tail : {"\x80", "\xBF", "\x80\x80", "\xBF\xBF"})
      if (utf8_length(tried + tail) == tried.size() + std::string_view(tail).size()) return length;
  }
  return 1;
}

}  // namespace

std::string normal_form(std::string_view text, NormalForm form) {
  std::string out;
  for (std::size_t from = 0, at = 0; from < text.size();) {
    CodePoint c{};
    while (at < text.size() && !in(newer_than_9, (c = first_code_point(text.substr(at))).value))
      at += c.bytes;
    append_normal_form(text.substr(from, at - from), form, out);
    if (at < text.size())
      out += text.substr(at, c.bytes),
          at += c.bytes;  // has no other form, and marks do not pass it
    from = at;
  }
  return out;
}

std::string well_formed(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const std::size_t valid = utf8_valid_prefix(bytes);
    text += bytes.substr(0, valid);
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    text += "\xEF\xBF\xBD";
    bytes.remove_prefix(maximal_subpart(bytes));
  }
  return text;
}

CodePoint first_code_point(std::string_view text) {
  const unsigned char lead = static_cast<unsigned char>(text.front());
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  return {utf8_code_point(text, bytes), bytes};
}

CodePoint last_code_point(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && continues_utf8(text[at])) --at;
  return first_code_point(text.substr(at));
}

std::string_view stripped(std::string_view text, bool left, bool right) {
  const auto spaced = [](CodePoint c) { return is_white_space(c.value); };
  while (right && !text.empty() && spaced(last_code_point(text)))
    text.remove_suffix(last_code_point(text).bytes);
  while (left && !text.empty() && spaced(first_code_point(text)))
    text.remove_prefix(first_code_point(text).bytes);
  return text;
}

void append_utf8(std::string& text, std::uint32_t code_point) {
  utf8proc_uint8_t bytes[4];
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(count));
}

std::size_t count_code_points(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !continues_utf8(c); }));
}

bool is_white_space(std::uint32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}
bool is_nonspacing_mark(std::uint32_t c) {
  return c >= 0x300 && category_in_8(c) == UTF8PROC_CATEGORY_MN;
}
bool is_mark(std::uint32_t c) {
  const auto k = c < 0x300 ? UTF8PROC_CATEGORY_CN : category_in_9(c);
  return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
}
bool is_other(std::uint32_t c) {
  const auto k = category_in_8(c);
  return k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CS ||
         k == UTF8PROC_CATEGORY_CO;
}
bool is_punctuation(std::uint32_t c) {
  const auto k = category_in_8(c);
  return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}
bool is_number(std::uint32_t c) {
  const auto k = category(c);
  return (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO) ||
         (c >= 0x11DE0 && c <= 0x11DE9) || (c >= 0x16FF4 && c <= 0x16FF6);
}
bool is_word(std::uint32_t c) {
  const auto k = category(c);
  const bool circled = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                       (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NL) || k == UTF8PROC_CATEGORY_PC ||
         c == 0x200C || c == 0x200D || circled;
}

void append_lower_case(std::string& text, std::uint32_t c) {
  if (c == 0x130) {  // the one letter whose full lower case is two code points
    text += "i\xCC\x87";
    return;
  }
  for (const auto& [letters, lower] : capitals_after_15)
    if (c >= letters.first && c <= letters.last)
      return append_utf8(text, c - letters.first + lower);
  append_utf8(text, static_cast<std::uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

std::string newer_code_points(std::initializer_list<std::string_view> properties) {
  const auto loose = [](std::string_view name) {
    std::string key;
    for (const char c : name)
      if (c != '_' && c != ' ' && c != '-')
        key += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    return key;
  };
  std::vector<Range> ranges;
  for (const auto& [points, category, script] : newer_than_14) {
    const std::string of = loose(category), group = of.substr(0, 1), in = loose(script);
    const bool has = std::any_of(properties.begin(), properties.end(), [&](std::string_view p) {
      const std::string key = loose(p);
      return key == of || key == group || key == in || key == "assigned";
    });
    if (has && !ranges.empty() && ranges.back().last + 1 == points.first)
      ranges.back().last = points.last;
    else if (has)
      ranges.push_back(points);
  }
  std::string parts;
  for (const Range& r : ranges) parts += printed("\\x{%X}-\\x{%X}", r.first, r.last);
  return parts;
}

std::size_t grapheme_length(std::string_view text) {
  const auto known =
      [](std::uint32_t c) -> utf8proc_int32_t {  // a mark that utf8proc knows, for one it may not
    const auto same = static_cast<utf8proc_int32_t>(c);
    if (c < 0x300 || utf8proc_category(same) != UTF8PROC_CATEGORY_CN) return same;
    const auto k = in(marks_after_16, c) ? UTF8PROC_CATEGORY_MN : category(c);
    return k == UTF8PROC_CATEGORY_MN ? 0x300 : k == UTF8PROC_CATEGORY_MC ? 0x903 : same;
  };
  CodePoint previous = first_code_point(text);
  std::size_t at = previous.bytes;
  utf8proc_int32_t state = 0;
  for (; at < text.size();) {
    const CodePoint next = first_code_point(text.substr(at));
    if (utf8proc_grapheme_break_stateful(known(previous.value), known(next.value), &state)) break;
    at += next.bytes;
    previous = next;
  }
  return at;
}

}  // namespace tfm::text
