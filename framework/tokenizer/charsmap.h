#pragma once
// SentencePiece's precompiled_charsmap: rules that replace a byte string by another. Little-endian:
// u32 bytes of a trie, the trie, then the replacements, each ended by a zero byte. The trie is
// Darts-clone's double array of u32 units; a key's value is the offset of its replacement. The blob
// is untrusted: every unit and offset is checked before it is followed.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tfm::tokenizer {

class Charsmap {
 public:
  Charsmap() = default;  // no rules
  // Error(input) starts with `where`.
  Charsmap(std::string_view blob, const std::string& where);

  bool empty() const { return units_.empty(); }
  // The longest, or shortest, key that the text starts with: its bytes (0: none) and its
  // replacement.
  struct Rule {
    std::size_t bytes = 0;
    std::string_view replacement;
  };
  Rule longest(std::string_view text) const { return find(text, false); }
  Rule shortest(std::string_view text) const { return find(text, true); }

 private:
  Rule find(std::string_view text, bool first) const;
  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

// Decodes base64 (RFC 4648, padded); nullopt if the text is not that.
std::optional<std::string> base64_decoded(std::string_view text);

}  // namespace tfm::tokenizer
