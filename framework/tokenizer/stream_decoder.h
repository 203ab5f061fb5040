#pragma once
// Decodes tokens one by one.
#include "tokenizer/tokenizer.h"

namespace tfm::tokenizer {

// A decoder may treat the first token of a text differently, and join tokens. What a token appends
// is therefore the difference that it makes to the text of the tokens before it.
class StreamDecoder {
 public:
  // `before`: tokens of the text so far.
  StreamDecoder(const Tokenizer& tokenizer, std::vector<std::int32_t> before);
  // The text that the token appends; "" for an id that the tokenizer does not have.
  std::string add(std::int32_t id);

 private:
  const Tokenizer& tokenizer_;
  std::vector<std::int32_t> ids_;  // the last tokens
  std::string text_;               // of ids_
};

}  // namespace tfm::tokenizer
