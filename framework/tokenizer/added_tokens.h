#pragma once
// Tokens that are found in a text before anything else is done with it (added_tokens of
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
  bool single_word = false;             // only where no word character touches it
  bool lstrip = false, rstrip = false;  // takes the white space before (after) it along
  bool normalized = true;  // looked for in the normalized text, else in the text as it came
};

// One set of tokens that are looked for together: from the left, of those that fit at a place the
// longest.
class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(
      std::vector<AddedToken> tokens);  // contents are what to look for; empty ones are left out

  // Calls sink(begin, end, token) for the stretches of a text in order; token is null for the text
  // between tokens.
  using Sink = std::function<void(std::size_t begin, std::size_t end, const AddedToken* token)>;
  void split(std::string_view text, const Sink& sink) const;
  bool empty() const { return tokens_.empty(); }
  // Whether text may be cut before any space or line feed that no white space precedes: no token
  // holds or takes what follows.
  bool allows_cuts() const;

 private:
  std::vector<AddedToken> tokens_;
  text::Trie trie_;  // to indices of tokens_
  bool starts_[256] = {};
};

}  // namespace tfm::tokenizer
