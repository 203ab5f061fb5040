#pragma once
// The last step of encoding: from a word to ids.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tfm::tokenizer {

inline constexpr std::string_view metaspace = "\xE2\x96\x81";  // U+2581: a space, in a token

// Tokens and their ids, which are distinct.
using VocabEntries = std::vector<std::pair<std::string, std::int32_t>>;

// Every member may be called from several threads at once.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the ids of `word`, which is non-empty well-formed UTF-8.
  virtual void encode(std::string_view word, std::vector<std::int32_t>& ids) const = 0;
  // Whether a word may be encoded in parts, cut before each U+2581 that follows another character.
  virtual bool splits_at_metaspace() const { return false; }
  // What tokens inside a word begin with, where only they do.
  virtual std::string_view continuation() const { return ""; }
};

}  // namespace tfm::tokenizer
