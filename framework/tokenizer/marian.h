#pragma once
// A MarianMT folder of Hugging Face: source.spm and target.spm cut a side's text into pieces, to
// which vocab.json gives their ids.
//
// As transformers' MarianTokenizer: a text that begins with a language's >>code<< begins with that
// token; a piece that vocab.json lacks is <unk>; </s> ends a text; decoding leaves </s>, <pad> and
// <unk> out and white space around the text. Refused: sides with vocabularies of their own, models
// of another type than unigram.
#include <memory>
#include <string>

#include "tokenizer/tokenizer.h"

namespace tfm::tokenizer {

// The source side, whose target() is the other. Throws Error(input) with file and place.
std::unique_ptr<Tokenizer> read_marian(const std::string& folder);

}  // namespace tfm::tokenizer
