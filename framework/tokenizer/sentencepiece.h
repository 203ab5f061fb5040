#pragma once
// SentencePiece's .model files (Kudo and Richardson, "SentencePiece", 2018): a serialized
// ModelProto of sentencepiece_model.proto, of type unigram or BPE.
//
// Ids are those of SentencePiece's Encode(). A byte that is not part of well-formed UTF-8 counts as
// U+FFFD. For unigram models scores are added in fp32 along the whole text, as in SentencePiece; a
// text cut by safe_cut() may be split differently where scores are equal up to that rounding.
// Refused as unsupported: models of words or characters, unused pieces of BPE models, rules for
// decoding.
#include <memory>
#include <string>

#include "tokenizer/pipeline.h"

namespace tfm::tokenizer {

// Both throw Error(input) with file and place.
std::unique_ptr<Tokenizer> read_sentencepiece(const std::string& path);
// The same, with the same splits, but with the ids of `vocabulary`, which names pieces and runs of
// code points that are not pieces. What it lacks becomes its <unk>, which it must have. Unigram
// models only.
PipelineParts read_sentencepiece(const std::string& path, const VocabEntries& vocabulary);

}  // namespace tfm::tokenizer
