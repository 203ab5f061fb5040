#pragma once
// The data sources a configuration names, opened and checked against the model's vocabulary.
#include <memory>

#include "data/batcher.h"
#include "train/engine.h"

namespace tfm {

struct RunData {
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Source> train, validation;

  explicit RunData(const Config& config);
  // Sequences of the validation source that an evaluation reads.
  std::int64_t validation_sequences(const Config& config) const;
  BatchReader validation_reader() const;
};

SourceSpec source_spec(const SourceConfig& config);

}  // namespace tfm
