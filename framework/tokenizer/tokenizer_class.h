#pragma once
// Tokenizers of transformers that a directory holds without a tokenizer.json: their class, by
// tokenizer_config.json, says which ids they add to those of bytes or of a SentencePiece model.
#include <memory>
#include <string>

#include "tokenizer/tokenizer.h"

namespace tfm::tokenizer {

// ByT5Tokenizer, which needs no vocabulary: <pad> is 0, </s>, which ends a text, 1, <unk> 2; a byte
// is its value + 3; the sentinels follow. tokenizer_config.json may name other special tokens.
bool is_byt5(const std::string& folder);
std::unique_ptr<Tokenizer> read_byt5(const std::string& folder);

// Those of a SentencePiece model, whose ids are the indices of its pieces. Its special tokens are
// matched in a text before all else. Error(input) for another class, whose ids may be others.
//
// T5Tokenizer (spiece.model): </s> ends a text; the sentinels follow the pieces, the last first.
std::unique_ptr<Tokenizer> read_t5(const std::string& folder);
// LlamaTokenizer (tokenizer.model): <s> begins a text; add_bos_token and add_eos_token may differ.
std::unique_ptr<Tokenizer> read_llama(const std::string& folder);
// Throws: XLM-R's, mBART's and M2M100's tokenizers number the pieces of sentencepiece.bpe.model
// anew, each in its own way.
std::unique_ptr<Tokenizer> refuse_fairseq(const std::string& folder);

}  // namespace tfm::tokenizer
