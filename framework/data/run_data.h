#pragma once
// The data sources a configuration names, opened and checked against the model's vocabulary.
#include <memory>

#include "config/config.h"
#include "data/dataset.h"
#include "data/pairs.h"
#include "data/source.h"

namespace tfm::data {

// Opens the files that `data` names without reading them in full: the tokenizer; the headers of
// token files, and their first sample's ids against the vocabulary; the beginning of text files.
// Returns the tokenizer, or null if it is among the problems.
std::unique_ptr<tokenizer::Tokenizer> check_data(const config::Config& config,
                                                 config::Problems& problems);

// A remark where the tokenizer makes less than half of the model's ids, as where it is not the one
// that the model was trained with; empty: there is none to make.
std::string unused_ids(const config::Config& config, const tokenizer::Tokenizer& tokenizer);

// A hash of the number of batches and of up to 64 sequences of batch `index`, evenly spread, by
// which ranks that read other files are found.
std::uint64_t fingerprint(const config::Config& config, const Dataset& data, std::int64_t index);
inline constexpr const char* kSameDataRemedy =
    "give every host the same files, and ranks no pipe, of which each would read a part";

struct RunData {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::string tokenizer_fingerprint;  // empty without data.tokenizer
  std::vector<std::unique_ptr<Source>> sources;
  std::unique_ptr<Dataset> train, validation;  // `validation` may be null
  std::int64_t tokens = 0;                     // of the training data
  std::vector<std::string> notes;              // what was truncated or skipped, for the log

  // Errors name the key and its place. Nothing is tokenized before check_data() has passed.
  explicit RunData(const config::Config& config);
  // One pass over `source` alone, as `validation`. `section`: the configuration's section in which
  // it was written; empty: it was not.
  RunData(const config::Config& config, const config::SourceConfig& source,
          const std::string& section);
  // The number of validation batches that an evaluation reads.
  std::int64_t validation_batches(const config::Config& config) const;
  // The lines of those batches; for validation data of type pairs.
  struct Lines {
    std::vector<std::string> source, target;
  };
  Lines validation_lines(const config::Config& config) const;

 private:
  std::unique_ptr<Dataset> open(const config::Config& config, const config::SourceConfig& source,
                                bool endless);
};

}  // namespace tfm::data
