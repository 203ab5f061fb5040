#pragma once
// The data sources a configuration names, opened and checked against the model's vocabulary.
#include <memory>

#include "config/config.h"
#include "data/dataset.h"
#include "data/pairs.h"
#include "data/source.h"

namespace tfm::data {

// Files of pairs that a source of that type names.
PairSpec pair_files(const config::SourceConfig& source);

// Opens the files that `data` names without reading them in full: the tokenizer; of token files the
// headers, and the first sample's ids against the vocabulary; of text the first byte. The
// tokenizer, unless it is among the problems.
std::unique_ptr<tokenizer::Tokenizer> check_data(const config::Config& config,
                                                 config::Problems& problems);

struct RunData {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::vector<std::unique_ptr<Source>> sources;
  std::unique_ptr<Dataset> train, validation;  // the latter may be absent
  std::int64_t tokens = 0;                     // of the training data
  std::vector<std::string> notes;              // what was truncated or skipped, for the log

  // Errors name the key and where it was written; nothing is tokenized before check_data().
  explicit RunData(const config::Config& config);
  // One pass over `source` alone, as `validation`. `section`: of the configuration, where it was
  // written; empty: it was not.
  RunData(const config::Config& config, const config::SourceConfig& source,
          const std::string& section);
  // Batches of the validation data that an evaluation reads.
  std::int64_t validation_batches(const config::Config& config) const;
  // The lines of those batches; of validation data of type pairs.
  struct Lines {
    std::vector<std::string> source, target;
  };
  Lines validation_lines(const config::Config& config) const;

 private:
  std::unique_ptr<Dataset> open(const config::Config& config, const config::SourceConfig& source,
                                bool endless);
};

}  // namespace tfm::data
