#pragma once
// The data sources a configuration names, opened and checked against the model's vocabulary.
#include <memory>

#include "data/pairs.h"
#include "train/engine.h"

namespace tfm {

// Files of pairs that a source of that type names.
PairSpec pair_files(const SourceConfig& source);

struct RunData {
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<std::unique_ptr<Source>> sources;
  std::unique_ptr<Batcher> train, validation;  // the latter may be absent
  std::int64_t tokens = 0;                     // of the training data
  std::int64_t cut = 0;                        // sides of pairs that were too long

  explicit RunData(const Config& config);
  // One pass over `source` alone, as `validation`.
  RunData(const Config& config, const SourceConfig& source);
  // Batches of the validation data that an evaluation reads.
  std::int64_t validation_batches(const Config& config) const;
  // The lines of those batches; of validation data of type pairs.
  struct Lines {
    std::vector<std::string> source, target;
  };
  Lines validation_lines(const Config& config) const;

 private:
  std::unique_ptr<Batcher> open(const Config& config, const SourceConfig& source, bool endless);
};

}  // namespace tfm
