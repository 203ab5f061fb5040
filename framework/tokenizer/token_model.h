#pragma once
// The last step of encoding: from a word to ids.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"

namespace tfm::tokenizer {

inline constexpr std::string_view metaspace = "\xE2\x96\x81";  // U+2581: a space, in a token

// Tokens and their ids, which are distinct.
using VocabEntries = std::vector<std::pair<std::string, std::int32_t>>;

// BPE dropout (Provilkov, Emelianenko and Voita, "BPE-Dropout: simple and effective subword
// regularization", 2020): each time that a pair is chosen, each pair that has a merge is left out
// with probability `rate`. With rate 0 words are encoded as always, with 1 as their symbols.
struct BpeDropout {
  double rate = 0;
  std::function<double()> uniform;  // the next random number in (0, 1]
};

// Every member may be called from several threads at once, with a BpeDropout each.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the ids of `word`, which is non-empty well-formed UTF-8.
  virtual void encode(std::string_view word, std::vector<std::int32_t>& ids) const = 0;
  // Words of more than 1,024 symbols are encoded without dropout. internal_error() unless
  // `merges()`.
  virtual void encode(std::string_view /*word*/, const BpeDropout&,
                      std::vector<std::int32_t>& /*ids*/) const {
    internal_error("only merges can be dropped");
  }
  virtual bool merges() const { return false; }
  // Whether a word may be encoded in parts, cut before each U+2581 that follows another character.
  virtual bool splits_at_metaspace() const { return false; }
  // What tokens inside a word begin with, where only they do.
  virtual std::string_view continuation() const { return ""; }
};

}  // namespace tfm::tokenizer
