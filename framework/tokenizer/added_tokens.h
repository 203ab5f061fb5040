#pragma once
// Tokens that are matched in a text before anything else is done with it (added_tokens of
// tokenizer.json).
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/trie.h"

namespace tfm::tokenizer {

struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool single_word = false;             // matches only if no word character touches it
  bool lstrip = false, rstrip = false;  // also takes the white space before (after) it
  bool normalized = true;  // matched in the normalized text, otherwise in the original text
};

// A set of tokens that are matched together from left to right, the longest that matches at a
// place.
class AddedTokens {
 public:
  AddedTokens() = default;
  // Tokens with empty contents are ignored.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  // Calls sink(begin, end, token) for consecutive stretches of `text`; `token` is null for the text
  // between tokens.
  using Sink = std::function<void(std::size_t begin, std::size_t end, const AddedToken* token)>;
  void split(std::string_view text, const Sink& sink) const;
  bool empty() const { return tokens_.empty(); }
  // Whether a text may be cut before any space or line feed that no white space precedes: no token
  // contains or takes what follows.
  bool allows_cuts() const;

 private:
  std::vector<AddedToken> tokens_;
  text::Trie trie_;  // contents to indices of tokens_
  bool starts_[256] = {};
};

}  // namespace tfm::tokenizer
