#pragma once
// The contents of batches: a function of their index alone, whatever the layout.
#include <cstdint>
#include <vector>

#include "core/batch.h"
#include "core/error.h"

namespace tfm::data {

// Subclasses are the objectives: each turns text into inputs and labels in its own way.
class Dataset {
 public:
  virtual ~Dataset() = default;

  struct GlobalBatch {
    std::size_t shape = 0;       // which of the run's batch shapes
    std::int64_t sequences = 0;  // of all ranks
  };
  // For training, any index: epochs follow each other. For a single pass over the data, indices
  // below batches(); the last batch may be short.
  virtual GlobalBatch batch(std::int64_t index) const = 0;
  virtual std::int64_t batches() const = 0;  // of an epoch

  // The lines of the data that a batch's sequences are made of, numbered from 0, where each is made
  // of one.
  virtual std::vector<std::int64_t> items_of(std::int64_t /*batch*/) const {
    internal_error("sequences are not made of lines");
  }

  // Fills sequences [first, first + count) of a batch: every field that the objective knows and
  // that is in `fields`; others keep their values, which for a DataLoader's are those of padding.
  // Thread-safe. Error(input) if the data cannot be read.
  virtual void fill(std::int64_t index, std::int64_t first, std::int64_t count,
                    const BatchFields& fields) const = 0;
};

}  // namespace tfm::data
