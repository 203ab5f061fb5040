#pragma once
// SentencePiece's .model files (Kudo and Richardson, "SentencePiece", 2018): a serialized
// ModelProto of sentencepiece_model.proto, of type unigram or BPE.
//
// Ids are those of SentencePiece's Encode(). A byte that is not part of well-formed UTF-8 counts as
// U+FFFD. For unigram models scores are added in fp32 along the whole text, as SentencePiece does;
// a text cut by safe_cut() may choose otherwise between splits whose scores are equal up to that
// rounding. Not supported, and refused: models of words or characters, unused pieces of BPE models,
// rules for decoding.
#include <memory>
#include <string>

#include "tokenizer/pipeline.h"

namespace tfm::tokenizer {

// Both throw Error(input) with file and place.
std::unique_ptr<Tokenizer> read_sentencepiece(const std::string& path);
// The same, cutting text alike, with the ids of a vocabulary: of pieces, and of runs of code points
// that are no pieces; what it lacks is its <unk>, which it must have. Unigram models only.
PipelineParts read_sentencepiece(const std::string& path, const VocabEntries& vocabulary);

}  // namespace tfm::tokenizer
