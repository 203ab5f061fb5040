#pragma once
// The ids that objectives need of a tokenizer, and whether the model knows them.
#include <string>

#include "tokenizer/tokenizer.h"

namespace tfm::data {

// What begins a target for the decoder and what ends a side: the vocabulary's begin, [CLS] or
// padding, else its end; its end, [SEP] or end of document. `begin` >= 0 is used instead. Throws
// Error(usage) for a tokenizer without any that ends.
struct SentenceIds {
  std::int32_t begin = 0, end = 0;
};
SentenceIds sentence_ids(const tokenizer::Tokenizer& tokenizer, std::int64_t begin = -1);

// Throws Error(input) that starts with `where` unless id < vocab_size.
void check_known(std::int32_t id, std::int64_t vocab_size, const std::string& where);
// The same of an id of the tokenizer that an objective needs: Error(usage).
void check_fits(const std::string& what, std::int32_t id, std::int64_t vocab_size);

}  // namespace tfm::data
