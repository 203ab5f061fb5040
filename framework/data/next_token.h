#pragma once
// Next-token prediction: a label is the id after the input.
#include <optional>

#include "data/dataset.h"
#include "data/fill_in_middle.h"
#include "data/sampler.h"
#include "data/source.h"

namespace tfm::data {

// How the documents of a sequence are kept apart: `mask` numbers them from 0, and the first id of
// a document is no label.
struct DocumentEnds {
  bool separate = false;
  // The id that ends a document, to which it belongs; beside it, documents end where a file says.
  std::optional<std::int32_t> id;
};

// Batch i is positions [i * global_batch, (i + 1) * global_batch) of the sampler.
class NextToken final : public Dataset {
 public:
  // `source` must outlive this. `endless`: for training.
  NextToken(const Source& source, Sampler sampler, std::int64_t global_batch, bool endless,
            DocumentEnds documents = {}, std::optional<FillInMiddle> middle = {});
  GlobalBatch batch(std::int64_t index) const override;
  std::int64_t batches() const override;
  void fill(std::int64_t index, std::int64_t first, std::int64_t count,
            const BatchFields& fields) const override;

 private:
  const Source& source_;
  Sampler sampler_;
  std::int64_t global_batch_;
  bool endless_;
  DocumentEnds documents_;
  std::optional<FillInMiddle> middle_;
};

}  // namespace tfm::data
