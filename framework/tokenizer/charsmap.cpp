#include "tokenizer/charsmap.h"

#include "core/error.h"
#include "core/utf8.h"

namespace tfm::tokenizer {
namespace {

// A unit of the double array: bit 8 says that a leaf follows, bit 31 that this is a leaf, whose low
// 31 bits are the value.
bool has_leaf(std::uint32_t unit) { return (unit >> 8 & 1u) != 0; }
std::uint32_t value_of(std::uint32_t unit) { return unit & 0x7FFFFFFFu; }
std::uint32_t label_of(std::uint32_t unit) { return unit & (0x80000000u | 0xFFu); }
std::uint32_t offset_of(std::uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

std::uint32_t little_endian(const char* bytes) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

}  // namespace

Charsmap::Charsmap(std::string_view blob, const std::string& where) {
  if (blob.empty()) return;
  const std::uint64_t trie_bytes = blob.size() >= 4 ? little_endian(blob.data()) : 0;
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > blob.size() - 4)
    throw Error(ExitCode::input, where + "the character map is damaged: a trie of " +
                                     std::to_string(trie_bytes) + " bytes in " +
                                     std::to_string(blob.size()));
  units_.resize(trie_bytes / 4);
  for (std::size_t i = 0; i < units_.size(); ++i)
    units_[i] = little_endian(blob.data() + 4 + 4 * i);
  replacements_ = blob.substr(4 + trie_bytes);
  if (!replacements_.empty() && replacements_.back() != '\0')
    throw Error(ExitCode::input,
                where + "the character map is damaged: the last replacement has no end");
  if (utf8_valid_prefix(replacements_) != replacements_.size())
    throw Error(ExitCode::input,
                where + "the character map is damaged: a replacement is not UTF-8");
}

Charsmap::Rule Charsmap::find(std::string_view text, bool first) const {
  Rule rule;
  if (units_.empty()) return rule;
  std::size_t node = offset_of(units_[0]);
  for (std::size_t i = 0; i < text.size() && text[i] != '\0'; ++i) {
    const unsigned char byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) break;
    const std::uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (node >= units_.size()) break;
    const std::size_t offset = value_of(units_[node]);
    if (offset >= replacements_.size() || continues_utf8(replacements_[offset])) break;
    rule = {i + 1, std::string_view(replacements_.data() + offset)};
    if (first) break;
  }
  return rule;
}

std::optional<std::string> base64_decoded(std::string_view text) {
  static constexpr std::string_view alphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.size() % 4 != 0) return std::nullopt;
  while (text.size() % 4 != 2 && text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  std::uint32_t held = 0;
  int bits = 0;
  for (char c : text) {
    const std::size_t digit = alphabet.find(c);
    if (digit == alphabet.npos) return std::nullopt;
    held = (held << 6 | static_cast<std::uint32_t>(digit)) & 0xFFFFu;
    if ((bits += 6) >= 8) bytes.push_back(static_cast<char>(held >> (bits -= 8) & 0xFFu));
  }
  return bytes;
}

}  // namespace tfm::tokenizer
