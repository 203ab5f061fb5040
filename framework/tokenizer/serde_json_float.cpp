#include "tokenizer/serde_json_float.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>

namespace tfm::tokenizer {

double serde_json_float(std::string_view text) {
  static const std::array<double, 309> powers = [] {
    std::array<double, 309> p{};
    for (std::size_t i = 0; i < p.size(); ++i)
      p[i] = std::strtod(("1e" + std::to_string(i)).c_str(), nullptr);
    return p;
  }();
  const bool negative = text.starts_with('-');
  std::uint64_t significand = 0;
  std::int64_t exponent = 0;
  bool full = false, fraction = false;  // full: digits that follow add nothing
  std::size_t at = negative ? 1 : 0;
  for (; at < text.size() && text[at] != 'e' && text[at] != 'E'; ++at) {
    if (text[at] == '.') {
      fraction = true;
      full = false;
      continue;
    }
    const auto digit = static_cast<std::uint64_t>(text[at] - '0');
    std::uint64_t longer = 0;
    full = full || __builtin_mul_overflow(significand, std::uint64_t{10}, &longer) ||
           __builtin_add_overflow(longer, digit, &longer);
    if (!full) significand = longer;
    exponent += fraction ? (full ? 0 : -1) : (full ? 1 : 0);
  }
  if (at < text.size()) {
    std::string_view digits = text.substr(at + 1);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    std::int32_t given = 0;
    const auto error = std::from_chars(digits.data(), digits.data() + digits.size(), given).ec;
    if (error != std::errc()) given = digits.starts_with('-') ? -1000000000 : 1000000000;
    exponent += given;
  }
  auto value = static_cast<double>(significand);
  for (; exponent < -308 && value != 0; exponent += 308) value /= 1e308;
  if (value != 0)
    value = exponent < 0     ? value / powers[static_cast<std::size_t>(-exponent)]
            : exponent < 309 ? value * powers[static_cast<std::size_t>(exponent)]
                             : std::numeric_limits<double>::infinity();
  return negative ? -value : value;
}

}  // namespace tfm::tokenizer
