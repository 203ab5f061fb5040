#include "mutator.h"

#include <algorithm>
#include <cctype>

namespace tfm::fuzz {
namespace {

constexpr std::uint64_t kNumbers[] = {0,
                                      1,
                                      2,
                                      3,
                                      4,
                                      7,
                                      8,
                                      16,
                                      31,
                                      32,
                                      64,
                                      100,
                                      127,
                                      128,
                                      255,
                                      256,
                                      1000,
                                      1024,
                                      4096,
                                      32767,
                                      32768,
                                      65535,
                                      65536,
                                      (1u << 24) - 1,
                                      1u << 24,
                                      (1u << 31) - 1,
                                      1u << 31,
                                      ~0u,
                                      1ull << 32,
                                      1ull << 53,
                                      (1ull << 62) + 1,
                                      (1ull << 63) - 1,
                                      1ull << 63,
                                      ~0ull,
                                      ~0ull - 1};
constexpr const char* kTexts[] = {"{",
                                  "}",
                                  "[",
                                  "]",
                                  "[]",
                                  "{}",
                                  "\"\"",
                                  ":",
                                  ",",
                                  "\"",
                                  "null",
                                  "true",
                                  "false",
                                  "-1",
                                  "-0",
                                  "0.5",
                                  "1e308",
                                  "1e999",
                                  "1e-400",
                                  "-9223372036854775808",
                                  "18446744073709551616",
                                  "\\u0000",
                                  "\\ud800",
                                  "\xEF\xBB\xBF",
                                  "\xFF",
                                  "\xC3\xA9",
                                  "\xE2\x96\x81",
                                  "\xF0\x9F\x98\x80",
                                  "\n",
                                  "\r\n",
                                  "\t",
                                  "  ",
                                  "#",
                                  "- ",
                                  ": ",
                                  "&a",
                                  "*a",
                                  "|",
                                  "(a*)*$",
                                  "\\p{L}+",
                                  "(?=",
                                  "[^"};

bool in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-' ||
         c == '+';
}

}  // namespace

void Mutator::learn(std::string_view text) {
  for (std::size_t at = text.find('"'); at != text.npos && words_.size() < 2000;) {
    const std::size_t end = text.find('"', at + 1);
    if (end == text.npos) break;
    if (std::string w(text.substr(at + 1, end - at - 1));
        !w.empty() && w.size() <= 40 && std::find(words_.begin(), words_.end(), w) == words_.end())
      words_.push_back(std::move(w));
    at = text.find('"', end + 1);
  }
}

std::string Mutator::word() {
  switch (below(4)) {
    case 0:
      return std::to_string(kNumbers[below(std::size(kNumbers))] + below(3) - 1);
    case 1:
      return kTexts[below(std::size(kTexts))];
    default:
      return words_.empty() ? std::to_string(below(100)) : words_[below(words_.size())];
  }
}

// Overwrites 1, 2, 4 or 8 bytes by a number of either byte order.
void Mutator::set_number(std::string& bytes) {
  const std::size_t width = std::size_t{1} << below(4);
  if (bytes.size() < width) return;
  const std::uint64_t n = kNumbers[below(std::size(kNumbers))] + below(3) - 1;
  const std::size_t at = below(bytes.size() - width + 1);
  const bool big = below(4) == 0;
  for (std::size_t i = 0; i < width; ++i)
    bytes[at + (big ? width - 1 - i : i)] = static_cast<char>(n >> (8 * i));
}

void Mutator::replace_word(std::string& bytes) {
  std::size_t begin = below(bytes.size()), end = begin;
  while (begin > 0 && in_word(bytes[begin - 1])) --begin;
  while (end < bytes.size() && in_word(bytes[end])) ++end;
  bytes.replace(begin, end - begin, word());
}

// Inserts bytes and adds their number to one or two bytes before that may be lengths of what
// encloses the place.
void Mutator::grow(std::string& bytes) {
  const std::size_t at = below(bytes.size() + 1), n = 1 + below(8);
  std::string more = below(2) ? word().substr(0, n) : std::string(n, static_cast<char>(below(256)));
  int found = 0;
  for (std::size_t i = at; i-- > 0 && i + 48 > at && found < 2;) {
    const std::size_t length = static_cast<unsigned char>(bytes[i]);
    if (length >= at - i - 1 && length + more.size() < 128 && i + length < bytes.size() && below(3))
      bytes[i] = static_cast<char>(length + more.size()), ++found;
  }
  bytes.insert(at, more);
}

void Mutator::change(std::string& bytes, const std::vector<std::string>& corpus) {
  const std::size_t n = bytes.size(), at = below(n),
                    length = 1 + below(std::min<std::size_t>(n - at, below(4) ? 16 : n));
  const auto other = [&]() -> std::string_view { return corpus[below(corpus.size())]; };
  switch (below(13)) {
    case 0:
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
      break;
    case 1:
      bytes[at] = static_cast<char>(below(256));
      break;
    case 2:
      bytes.erase(at, length);
      break;
    case 3:
      bytes.insert(below(n + 1), bytes.substr(at, length));
      break;
    case 4:
      bytes.insert(at, word());
      break;
    case 5:
      bytes.replace(at, length, bytes.substr(below(n), 1 + below(16)));
      break;
    case 6:
      bytes.resize(at);
      break;
    case 7:
      set_number(bytes);
      break;
    case 8:
    case 9:
      replace_word(bytes);
      break;
    case 10:
      grow(bytes);
      break;
    case 11: {  // a part of another input
      const std::string_view from = other();
      const std::size_t first = below(from.size());
      bytes.insert(at, from.substr(first, 1 + below(below(2) ? 64 : from.size())));
      break;
    }
    default: {  // the begin of one, the end of another
      const std::string_view from = other();
      if (below(4) == 0)
        bytes.replace(at, bytes.npos,
                      from.substr(std::min(from.size(), below(2) ? at : below(from.size() + 1))));
      else
        for (std::size_t repeats = 1 + below(below(8) ? 4 : 200), i = 0;
             i < repeats && bytes.size() < max_bytes_; ++i)
          bytes.insert(at, bytes.substr(at, length));
    }
  }
}

std::string Mutator::operator()(const std::vector<std::string>& corpus) {
  // The smaller of two; every other time of the newest tenth, which has found something new.
  const std::size_t range = below(2) ? corpus.size() : corpus.size() / 10 + 1;
  const auto& [a, b] = std::pair<const std::string&, const std::string&>(
      corpus[corpus.size() - 1 - below(range)], corpus[corpus.size() - 1 - below(range)]);
  std::string bytes = a.size() < b.size() ? a : b;
  for (std::size_t k = std::size_t{1} << below(5); k > 0; --k) {
    if (bytes.empty()) bytes = word();
    if (!bytes.empty()) change(bytes, corpus);
  }
  if (bytes.size() > max_bytes_) bytes.resize(max_bytes_);
  return bytes;
}

}  // namespace tfm::fuzz
