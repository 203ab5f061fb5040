// Python's operations on strings.
#include <utf8proc.h>

#include <algorithm>
#include <cstring>

#include "text/jinja/operations.h"
#include "text/unicode.h"

namespace tfm::text::jinja {

std::u32string code_points(std::string_view text) {
  std::u32string points;
  while (!text.empty()) {
    const CodePoint c = first_code_point(text);
    points += static_cast<char32_t>(c.value);
    text.remove_prefix(c.bytes);
  }
  return points;
}

std::string utf8(std::u32string_view points) {
  std::string text;
  for (const char32_t c : points) append_utf8(text, c);
  return text;
}

void append(std::string& text, std::string_view more, const Spend& spend) {
  check_size(text.size() + more.size());
  spend(more.size());
  text += more;
}

std::size_t place_of(std::string_view text, std::string_view sought, std::size_t from) {
  if (from > text.size()) return text.npos;
  const void* const found =
      ::memmem(text.data() + from, text.size() - from, sought.data(), sought.size());
  return found ? static_cast<std::size_t>(static_cast<const char*>(found) - text.data())
               : text.npos;
}

namespace {

void append_upper(std::string& text, char32_t c) {
  if (c == U'\u00DF')  // the most frequent letter whose upper case is two
    text += "SS";
  else
    append_utf8(text,
                static_cast<std::uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}

bool is_cased(char32_t c) {
  const auto p = static_cast<utf8proc_int32_t>(c);
  return utf8proc_toupper(p) != p || utf8proc_tolower(p) != p;
}

}  // namespace

std::string upper(std::string_view text) {
  std::string result;
  for (const char32_t c : code_points(text)) append_upper(result, c);
  return result;
}

std::string lower(std::string_view text) {
  std::string result;
  for (const char32_t c : code_points(text)) append_lower_case(result, c);
  return result;
}

std::string capitalized(std::string_view text) {
  if (text.empty()) return "";
  const std::size_t first = first_code_point(text).bytes;
  return upper(text.substr(0, first)) + lower(text.substr(first));
}

std::string titled(std::string_view text) {
  std::string result;
  bool within = false;
  for (const char32_t c : code_points(text)) {
    within ? append_lower_case(result, c) : append_upper(result, c);
    within = is_cased(c);
  }
  return result;
}

std::vector<std::string> lines_of(const std::string& text) {
  static const std::u32string ends = U"\n\r\v\f\x1C\x1D\x1E\u0085\u2028\u2029";
  std::vector<std::string> lines;
  const std::u32string points = code_points(text);
  for (std::size_t at = 0; at < points.size();) {
    check_size(sizeof(Value) * (lines.size() + 1));
    const std::size_t end = std::min(points.find_first_of(ends, at), points.size());
    lines.push_back(utf8(std::u32string_view(points).substr(at, end - at)));
    at = end + (points.substr(end, 2) == U"\r\n" ? 2 : 1);
  }
  return lines;
}

std::string stripped(const std::string& text, const Value& characters, bool left, bool right) {
  if (characters.none() || characters.undefined()) {
    const auto space = [](char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); };
    const std::u32string points = code_points(text);
    std::size_t begin = 0, end = points.size();
    while (left && begin < end && space(points[begin])) ++begin;
    while (right && end > begin && space(points[end - 1])) --end;
    return utf8(std::u32string_view(points).substr(begin, end - begin));
  }
  if (!characters.string()) throw Problem("expected a string of the characters to strip");
  const std::u32string set = code_points(*characters.string()), points = code_points(text);
  std::size_t begin = 0, end = points.size();
  while (left && begin < end && set.find(points[begin]) != set.npos) ++begin;
  while (right && end > begin && set.find(points[end - 1]) != set.npos) --end;
  return utf8(std::u32string_view(points).substr(begin, end - begin));
}

std::string replaced(const std::string& text, const std::string& from, const std::string& to,
                     std::int64_t most, const Spend& spend) {
  std::string result;
  std::size_t at = 0;
  // An empty text is found before each character and at the end.
  for (std::int64_t n = 0; most < 0 || n < most; ++n) {
    const std::size_t found = from.empty() ? at : place_of(text, from, at);
    if (found == text.npos || found > text.size()) break;
    check_size(result.size() + to.size() + found - at);
    spend(to.size() + found - at);
    result.append(text, at, found - at).append(to);
    at = found + from.size();
    if (!from.empty()) continue;
    if (at >= text.size()) return result;
    const std::size_t bytes = first_code_point(std::string_view(text).substr(at)).bytes;
    result.append(text, at, bytes);
    at += bytes;
  }
  return at < text.size() ? result.append(text, at) : result;
}

}  // namespace tfm::text::jinja
