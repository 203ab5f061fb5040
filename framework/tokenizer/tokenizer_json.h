#pragma once
// tokenizer.json, the file format of Hugging Face's `tokenizers` (version "1.0"), and GPT-2's
// vocab.json + merges.txt.
//
// Models: BPE, WordPiece, Unigram. Post-processors: TemplateProcessing, BertProcessing,
// RobertaProcessing, ByteLevel, Sequence. normalizer.h, pre_tokenizer.h and token_decoder.h list
// the other components. `truncation` and `padding` are ignored: ids are those of the whole text.
// What is not supported is refused by name.
#include <memory>
#include <string>

#include "tokenizer/tokenizer.h"

namespace tfm::tokenizer {

// Both throw Error(input) that names the file and the place in it.
std::unique_ptr<Tokenizer> read_tokenizer_json(const std::string& path);

// vocab.json: an object from token, written in the byte alphabet, to a distinct id below 2^24; all
// 256 bytes must have one. merges.txt: one pair per line, best first; lines that start with
// #version are skipped. "<|endoftext|>" and the tokens of an added_tokens.json beside them, an
// object as vocab.json, are matched in a text before all else.
std::unique_ptr<Tokenizer> read_gpt2_files(const std::string& vocab_path,
                                           const std::string& merges_path);

}  // namespace tfm::tokenizer
