#pragma once
// The text of tokens as they come.
#include "tokenizer/tokenizer.h"

namespace tfm::tokenizer {

// A decoder may treat a text's first token unlike the others, and join tokens: what a token appends
// is the difference that it makes to the text of those before it.
class StreamDecoder {
 public:
  // `before`: tokens of the text so far.
  StreamDecoder(const Tokenizer& tokenizer, std::vector<std::int32_t> before);
  // Nothing for an id that is none of the tokenizer's.
  std::string add(std::int32_t id);

 private:
  const Tokenizer& tokenizer_;
  std::vector<std::int32_t> ids_;  // the last tokens
  std::string text_;               // of ids_
};

}  // namespace tfm::tokenizer
