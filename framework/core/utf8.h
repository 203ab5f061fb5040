#pragma once
// Well-formed UTF-8 as defined by table 3-7 of the Unicode standard.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace tfm {

// Whether the byte is a continuation byte.
inline bool continues_utf8(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// Length in bytes of the well-formed sequence at the start of a non-empty text, or 0 if there is
// none.
inline std::size_t utf8_length(std::string_view text) {
  const auto at = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto tail = [&](std::size_t i) { return i < text.size() && continues_utf8(text[i]); };
  const unsigned a = at(0), b = at(1);
  if (a < 0x80) return 1;
  if (a < 0xC2) return 0;
  if (a < 0xE0) return tail(1) ? 2 : 0;
  if (a < 0xF0)
    return tail(1) && tail(2) && (a != 0xE0 || b >= 0xA0) && (a != 0xED || b < 0xA0) ? 3 : 0;
  if (a < 0xF5)
    return tail(1) && tail(2) && tail(3) && (a != 0xF0 || b >= 0x90) && (a != 0xF4 || b < 0x90) ? 4
                                                                                                : 0;
  return 0;
}

// Number of bytes before the first one that is not part of a well-formed sequence.
inline std::size_t utf8_valid_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t block;
    while (at + sizeof(block) <= text.size()) {
      std::memcpy(&block, text.data() + at, sizeof(block));
      if (block & 0x8080808080808080u) break;
      at += sizeof(block);
    }
    if (at == text.size()) break;
    const std::size_t length = utf8_length(text.substr(at));
    if (length == 0) break;
    at += length;
  }
  return at;
}

// Code point of the well-formed sequence of `length` bytes at the start of the text.
inline std::uint32_t utf8_code_point(std::string_view text, std::size_t length) {
  const auto at = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i]));
  };
  if (length == 1) return at(0);
  std::uint32_t c = at(0) & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) c = c << 6 | (at(i) & 0x3Fu);
  return c;
}

// Encodes a code point below 0x800.
inline std::string utf8_of(std::uint32_t c) {
  if (c < 0x80) return {static_cast<char>(c)};
  return {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
}

}  // namespace tfm
