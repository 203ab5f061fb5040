#pragma once
// Where words and sentences begin among the tokens of a text.
#include <cstdint>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace tfm::data {

// Tokens stand for text with the space before it: a word goes from one space to the next, as that
// of byte-level BPE and SentencePiece; of WordPiece, from one token without ## to the next. Special
// tokens, and ids that the tokenizer does not know, are words of their own.
class Words {
 public:
  explicit Words(const tokenizer::Tokenizer& tokenizer);
  // Whether `id` begins a word if it follows `before`.
  bool begins_word(std::int32_t before, std::int32_t id) const {
    return ((has(before) | has(id)) & alone) || (has(before) & breaks) || (has(id) & spaced);
  }
  // Whether `id` begins a sentence if it follows `before`: a full stop, an exclamation or question
  // mark and the end of the word, or the end of a document.
  bool begins_sentence(std::int32_t before, std::int32_t id) const {
    return (has(before) & ends) || ((has(before) & stops) && begins_word(before, id));
  }

 private:
  // Bits: is a word of its own; ends with white space that belongs to no word; begins with white
  // space; ends a sentence where a word ends; ends one anywhere.
  enum Trait : std::uint8_t { alone = 1, breaks = 2, spaced = 4, stops = 8, ends = 16 };
  std::uint8_t has(std::int32_t id) const {
    const auto at = static_cast<std::size_t>(id);
    return at < traits_.size() ? traits_[at] : std::uint8_t{alone};
  }
  std::vector<std::uint8_t> traits_;
};

}  // namespace tfm::data
