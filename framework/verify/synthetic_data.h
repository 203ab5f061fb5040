#pragma once
// The data that tfm-verify trains on.
#include <limits>

#include "data/dataset.h"
#include "plan/step_plan.h"

namespace tfm::verify {

// Random ids. Sequences differ in their numbers of labels and, before the padding, of keys, but
// have at least one of each; documents have 5 tokens.
class SyntheticData final : public data::Dataset {
 public:
  // The configuration must outlive this.
  SyntheticData(const config::Config& config, std::int64_t sequences, std::int64_t batches);
  GlobalBatch batch(std::int64_t) const override { return {0, sequences_}; }
  std::int64_t batches() const override { return batches_; }
  void fill(std::int64_t index, std::int64_t first, std::int64_t count,
            const BatchFields& fields) const override;

 private:
  const config::Config& config_;
  std::int64_t sequences_, batches_;
  // Tokens of a target; its padding depends on the layout.
  std::int64_t most_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace tfm::verify
