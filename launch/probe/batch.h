#pragma once
// The batch of tfm-probe, read from a file of tensors that are named as in transformers.
#include <map>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/dataset.h"
#include "launch/support/arguments.h"
#include "nn/model.h"

namespace tfm::launch {

// One batch, with the names of the model's fields.
class ProbeBatch final : public data::Dataset {
 public:
  nn::BatchShape shape;  // of the global batch
  std::map<Field, std::vector<std::int32_t>> fields;
  bool labelled = false;
  bool ignored = false;  // all labels of one kind are, so that they have no mean

  GlobalBatch batch(std::int64_t) const override { return {0, shape.sequences}; }
  std::int64_t batches() const override { return 1; }
  void fill(std::int64_t step, std::int64_t first, std::int64_t count,
            const BatchFields& to) const override;
};

// Reads the file of --batch. Error(input) names a tensor that is missing, not for this model, of
// another shape than the others, or has ids out of range. `dir`: the model's directory, which gives
// its padding id; where `config` has no model.decoder_start, its tokenizer is read if targets are
// to be derived, and must be the one that the model was trained with.
ProbeBatch read_probe_batch(const Arguments& args, const std::string& dir,
                            const config::Config& config);

// `b` with its sequences extended to lengths that are multiples of `of`. The columns that are added
// are masked and have no labels.
ProbeBatch padded(const ProbeBatch& b, std::int64_t of);

}  // namespace tfm::launch
