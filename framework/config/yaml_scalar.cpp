// What scalars mean: YAML 1.2's core schema, decimal only, and counts with k M G Ki Mi Gi.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "config/yaml.h"

namespace tfm::config {
namespace {

using Kind = YamlNode::Kind;

bool digit(char c) { return c >= '0' && c <= '9'; }

// sign, digits around an optional point, exponent: the parts of a decimal number, and what follows
// it.
struct Decimal {
  bool negative = false;
  std::string digits;  // without the point
  long point = 0;      // digits after the point
  long exponent = 0;
  bool leading_zero = false;
  std::string_view rest;
};

std::optional<Decimal> decimal(std::string_view s) {
  Decimal d;
  if (!s.empty() && (s[0] == '+' || s[0] == '-')) {
    d.negative = s[0] == '-';
    s.remove_prefix(1);
  }
  d.leading_zero = s.size() > 1 && s[0] == '0' && digit(s[1]);
  bool pointed = false;
  for (; !s.empty() && (digit(s[0]) || (s[0] == '.' && !pointed)); s.remove_prefix(1)) {
    if (s[0] == '.') {
      pointed = true;
    } else {
      d.digits += s[0];
      d.point += pointed;
    }
  }
  if (d.digits.empty()) return std::nullopt;
  if (s.size() > 1 && (s[0] == 'e' || s[0] == 'E')) {
    std::string_view e = s.substr(1);
    const bool minus = e[0] == '-';
    if (e[0] == '+' || e[0] == '-') e.remove_prefix(1);
    if (!e.empty() && digit(e[0])) {
      for (; !e.empty() && digit(e[0]); e.remove_prefix(1))
        d.exponent = std::min(d.exponent * 10 + (e[0] - '0'), 100000L);
      if (minus) d.exponent = -d.exponent;
      s = e;
    }
  }
  d.rest = s;
  return d;
}

struct Suffix {
  std::string_view name;
  std::uint64_t factor;
};
constexpr Suffix kSuffixes[] = {{"", 1},           {"k", 1000},        {"M", 1000000},
                                {"G", 1000000000}, {"Ki", 1ull << 10}, {"Mi", 1ull << 20},
                                {"Gi", 1ull << 30}};

bool special_real(std::string_view s) {
  if (!s.empty() && (s[0] == '+' || s[0] == '-')) s.remove_prefix(1);
  for (std::string_view word :
       {".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN", "inf", "nan", "Infinity", "NaN"})
    if (s == word) return true;
  return false;
}

bool radix_prefixed(std::string_view s) {
  return s.size() > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'o' || s[1] == 'b');
}

// The problems that whole and real numbers share; empty: none.
std::string number_problem(const YamlNode& node, std::string_view wanted,
                           const std::optional<Decimal>& d) {
  const std::string expected = "; expected " + std::string(wanted);
  if (node.kind != Kind::scalar || !node.plain) return "found " + describe(node) + expected;
  if (special_real(node.text)) return quoted(node.text) + " is not a finite number" + expected;
  if (radix_prefixed(node.text) || (d && d->leading_zero))
    return quoted(node.text) + " is not a decimal number without leading zeros" + expected;
  if (!d) return "found " + describe(node) + expected;
  return {};
}

}  // namespace

std::optional<bool> boolean_of(const YamlNode& node) {
  if (node.kind != Kind::scalar || !node.plain) return std::nullopt;
  for (const std::string_view word : {"true", "True", "TRUE"})
    if (node.text == word) return true;
  for (const std::string_view word : {"false", "False", "FALSE"})
    if (node.text == word) return false;
  return std::nullopt;
}

bool is_number(const YamlNode& node) {
  if (node.kind != Kind::scalar || !node.plain) return false;
  if (node.text.starts_with(".") && special_real(node.text)) return true;
  const auto d = decimal(node.text);
  return d && d->rest.empty();
}

std::string describe(const YamlNode& node) {
  switch (node.kind) {
    case Kind::null:
      return "no value";
    case Kind::sequence:
      return "a list";
    case Kind::map:
      return "a section";
    case Kind::broken:
      return "a broken value";
    case Kind::scalar:
      break;
  }
  if (is_boolean(node)) return quoted(node.text);
  if (is_number(node)) return "the number " + shorten(node.text);
  return (node.plain ? "the text " : "the quoted text ") + quoted(node.text);
}

std::optional<WholeNumber> read_whole(const YamlNode& node, bool suffixes, std::string& problem) {
  const std::string_view wanted =
      suffixes ? "a whole number, such as 1024, 32k or 1Mi" : "a whole number";
  const auto d = node.kind == Kind::scalar ? decimal(node.text) : std::nullopt;
  problem = number_problem(node, wanted, d);
  if (!problem.empty()) return std::nullopt;
  const Suffix* suffix = std::find_if(std::begin(kSuffixes), std::end(kSuffixes),
                                      [&](const Suffix& s) { return s.name == d->rest; });
  if (suffix == std::end(kSuffixes) || (!suffixes && suffix->factor != 1)) {
    problem = "found " + describe(node) + "; expected " + std::string(wanted) +
              (suffixes ? "; suffixes are k M G Ki Mi Gi" : "");
    return std::nullopt;
  }
  const auto too_large = [&] {
    problem = quoted(node.text) + " is too large; expected " + std::string(wanted);
    return std::nullopt;
  };
  std::string digits = d->digits;
  long exponent = d->exponent - d->point;
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  while (exponent < 0 && digits.ends_with('0')) digits.pop_back(), ++exponent;
  if (digits.empty()) return WholeNumber{d->negative, 0};
  std::uint64_t value = 0;
  if (std::from_chars(digits.data(), digits.data() + digits.size(), value).ec != std::errc{})
    return too_large();
  if (__builtin_mul_overflow(value, suffix->factor, &value)) return too_large();
  for (; exponent < 0 && value % 10 == 0; ++exponent) value /= 10;
  if (exponent < 0) {
    problem = quoted(node.text) + " is not a whole number; expected " + std::string(wanted);
    return std::nullopt;
  }
  for (; exponent > 0; --exponent)
    if (__builtin_mul_overflow(value, std::uint64_t{10}, &value)) return too_large();
  return WholeNumber{d->negative, value};
}

std::optional<double> read_real(const YamlNode& node, std::string& problem) {
  const auto d = node.kind == Kind::scalar ? decimal(node.text) : std::nullopt;
  problem = number_problem(node, "a number", d);
  if (!problem.empty()) return std::nullopt;
  if (!d->rest.empty()) {
    problem = "found the text " + quoted(node.text) +
              "; expected a number without a suffix, such as 3e-4";
    return std::nullopt;
  }
  std::string_view s = node.text;
  if (s[0] == '+') s.remove_prefix(1);
  double value = 0;
  const auto result = std::from_chars(s.data(), s.data() + s.size(), value);
  if (result.ec != std::errc{} || !std::isfinite(value)) {
    problem = quoted(node.text) + " is out of the range of a double; expected a number nearer to 1";
    return std::nullopt;
  }
  return value;
}

std::optional<bool> read_boolean(const YamlNode& node, std::string& problem) {
  if (const auto value = boolean_of(node)) return value;
  problem = "found " + describe(node) + "; expected true or false";
  if (node.kind != Kind::scalar) return std::nullopt;
  std::string low;
  for (char c : node.text) low += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  for (std::string_view word : {"true", "yes", "on", "y", "1"})
    if (low == word) problem += " (write true)";
  for (std::string_view word : {"false", "no", "off", "n", "0"})
    if (low == word) problem += " (write false)";
  return std::nullopt;
}

std::string quote_yaml(std::string_view text) {
  const auto safe = [](char c) {
    return digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '/' ||
           c == '.' || c == '-';
  };
  const bool word = !text.empty() && std::all_of(text.begin(), text.end(), safe) &&
                    !digit(text[0]) && text[0] != '-' && text[0] != '.';
  bool reserved = false;
  for (std::string_view r : {"true", "True", "TRUE", "false", "False", "FALSE", "null", "Null",
                             "NULL", "yes", "no", "on", "off", "y", "n"})
    reserved |= text == r;
  if (word && !reserved) return std::string(text);
  std::string s = "\"";
  for (char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      s += std::string("\\") + c;
    } else if (u < 32 || u == 127) {
      s += "\\x" + hex_digits(u);
    } else {
      s += c;
    }
  }
  return s + "\"";
}

}  // namespace tfm::config
