#pragma once
// SentencePiece's precompiled_charsmap: rules that replace a byte string by another. Little-endian:
// u32 bytes of a trie, the trie, then the replacements, each ended by a zero byte. The trie is
// Darts-clone's double array of u32 units; a key's value is the offset of its replacement. The blob
// may come from anywhere: no unit and no offset is followed unchecked.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tfm::tokenizer {

class Charsmap {
 public:
  Charsmap() = default;  // no rules
  // Throws Error(input) that starts with `where`.
  Charsmap(std::string_view blob, const std::string& where);

  bool empty() const { return units_.empty(); }
  // Bytes of the longest (or, in shortest(), the shortest) key that the text starts with, and its
  // replacement; 0: none.
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

// The bytes that a base64 text (RFC 4648, padded) stands for, empty where it is none.
std::optional<std::string> base64_decoded(std::string_view text);

}  // namespace tfm::tokenizer
