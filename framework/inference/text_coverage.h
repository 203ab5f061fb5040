#pragma once
// How much of a text an evaluation predicts, for measures that do not depend on the tokenizer.
#include <optional>

#include "data/source.h"

namespace tfm::inference {

// Of the files of a source of type text, in windows of seq_len tokens. The first token of a file is
// no label, nor is what follows the last whole window; of separate documents, none is the first
// token. The text of such tokens does not count.
struct TextCoverage {
  std::int64_t labels = 0;  // also the ids that end documents
  std::int64_t bytes = 0;   // of the text, in JSON lines of the documents alone
  std::int64_t words = 0;   // separated by white space; a word counts where its last byte does
};
// The files are read once more: nullopt if one is a pipe.
std::optional<TextCoverage> text_coverage(const data::SourceSpec& source,
                                          const tokenizer::Tokenizer& tokenizer,
                                          std::int64_t seq_len);

}  // namespace tfm::inference
