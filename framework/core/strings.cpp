#include "core/strings.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "core/utf8.h"

namespace tfm {
namespace {

std::string plain_form(std::string_view word) {
  std::string s;
  for (char c : word)
    s += c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return s;
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        now[j] = std::min(now[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(now);
  }
  return last[b.size()];
}

std::string_view nearest(std::string_view word, const std::vector<std::string_view>& candidates,
                         int limit) {
  const std::string plain = plain_form(word);
  std::string_view best;
  int best_distance = 1000;
  for (std::string_view candidate : candidates) {
    const auto longer = std::max(plain.size(), candidate.size()),
               shorter = std::min(plain.size(), candidate.size());
    if (longer - shorter > static_cast<std::size_t>(limit)) continue;
    const int distance = edit_distance(plain, plain_form(candidate));
    if (distance > std::min(limit, std::max(1, static_cast<int>(candidate.size()) / 3))) continue;
    if (distance < best_distance) best = candidate, best_distance = distance;
  }
  return best;
}

std::string join(const std::vector<std::string_view>& words) {
  std::string s;
  for (auto w : words) s.append(s.empty() ? "" : ", ").append(w);
  return s;
}

std::string join(const std::vector<std::int64_t>& numbers) {
  std::string s;
  for (auto n : numbers) s.append(s.empty() ? "" : ", ").append(std::to_string(n));
  return s;
}

std::string shorten(std::string_view text, std::size_t length) {
  std::string s;
  for (char c : text) {
    if (s.size() >= length && !continues_utf8(c)) return s + "...";
    const auto u = static_cast<unsigned char>(c);
    s += u < 32 || u == 127 ? ' ' : c;
  }
  return s;
}

std::string quoted(std::string_view text) {
  return std::string("'").append(shorten(text)).append("'");
}

std::string printed(const char* format, ...) {
  char text[512];
  std::va_list values;
  va_start(values, format);
  std::vsnprintf(text, sizeof text, format, values);
  va_end(values);
  return text;
}

std::string number_text(double x) {
  if (x == std::trunc(x) && std::abs(x) < 1e15) return std::to_string(static_cast<std::int64_t>(x));
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, x).ptr};
}

bool ends_with_any_case(std::string_view text, std::string_view end) {
  return text.size() >= end.size() &&
         std::equal(end.begin(), end.end(), text.end() - std::ssize(end), [](char a, char b) {
           return a == std::tolower(static_cast<unsigned char>(b));
         });
}

std::string hex_digits(unsigned char byte) {
  static constexpr char digits[] = "0123456789abcdef";
  return {digits[byte >> 4], digits[byte & 15]};
}

std::string shell_quoted(std::string_view word) {
  const auto plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           std::string_view("/._-+,:@%=").find(c) != std::string_view::npos;
  };
  if (!word.empty() && word[0] != '-' && std::all_of(word.begin(), word.end(), plain))
    return std::string(word);
  std::string out = "'";
  for (char c : word) c == '\'' ? out.append("'\\''") : out.append(1, c);
  return out + "'";
}

std::string errno_text() { return std::strerror(errno); }

std::string in_quotes(std::string_view untrusted) {
  std::string text = "'";
  for (unsigned char c : untrusted.substr(0, 96)) {
    if (c >= 0x20 && c < 0x7f)
      text += static_cast<char>(c);
    else
      text += "\\x" + hex_digits(c);
  }
  return text + (untrusted.size() > 96 ? "...'" : "'");
}

}  // namespace tfm
