#pragma once
// The special ids that objectives need from a tokenizer, and whether the model knows them.
#include <optional>
#include <string>

#include "config/options.h"
#include "tokenizer/tokenizer.h"

namespace tfm::data {

// The ids that begin a target for the decoder, that end it, and that end a source. End: the
// vocabulary's end, [SEP] or end of document. Begin: `begin` if that is not negative, otherwise the
// target vocabulary's begin, [CLS] or padding, otherwise the end. Error(usage) for a tokenizer
// without any id that ends a sentence.
struct SentenceIds {
  std::int32_t begin = 0, end = 0, source_end = 0;
};
SentenceIds sentence_ids(const tokenizer::Tokenizer& tokenizer, std::int64_t begin = -1);

// The id before each document of a text, if any. Error(usage), which starts with `where`, if one is
// asked for of a tokenizer that has none.
std::optional<std::int32_t> document_begin(config::AddBegin add,
                                           const tokenizer::Tokenizer& tokenizer,
                                           const std::string& where);

// Error(input), which starts with `where`, unless id < vocab_size, the value of model.`key`.
void check_known(std::int32_t id, std::int64_t vocab_size, const std::string& where,
                 const std::string& key = "vocab_size");
// The same for an id of the tokenizer that an objective needs, with Error(usage).
void check_fits(const std::string& what, std::int32_t id, std::int64_t vocab_size);

}  // namespace tfm::data
