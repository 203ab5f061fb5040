#pragma once
// A MarianMT folder of Hugging Face: source.spm and target.spm cut the text of a side into pieces,
// and vocab.json gives their ids.
//
// As in transformers' MarianTokenizer, a text that begins with a language's >>code<< begins with
// that token; a piece missing from vocab.json is <unk>; </s> ends a text; decoding drops </s>,
// <pad> and <unk>, and white space around the text. With separate_vocabs in tokenizer_config.json,
// target_vocab.json has the ids of the target side. Refused: models of another type than unigram.
#include <memory>
#include <string>

#include "tokenizer/tokenizer.h"

namespace tfm::tokenizer {

// The tokenizer of the source side; its target() is that of the other. Error(input) with file and
// place.
std::unique_ptr<Tokenizer> read_marian(const std::string& folder);

}  // namespace tfm::tokenizer
