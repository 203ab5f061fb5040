#pragma once
// Batches as a function of their index alone; each rank takes its part.
#include <cstdint>
#include <future>
#include <map>
#include <vector>

#include "core/fields.h"
#include "data/order.h"
#include "data/source.h"

namespace tfm::data {

class Batcher {
 public:
  virtual ~Batcher() = default;

  struct Batch {
    std::size_t shape = 0;       // which of the run's batch shapes
    std::int64_t sequences = 0;  // of the global batch
  };
  // Of training, any index: epochs follow each other. Of one pass over the data: indices below
  // batches(), the last may be short.
  virtual Batch batch(std::int64_t index) const = 0;
  virtual std::int64_t batches() const = 0;  // of an epoch

  // Sequences [first, first + count) of a batch; every field the batcher knows and `fields` has is
  // filled. Thread-safe. Throws Error(input) as its source does.
  virtual void fill(std::int64_t index, std::int64_t first, std::int64_t count,
                    Fields& fields) const = 0;
};

// Batch i is positions [i * global_batch, (i + 1) * global_batch) of the order; a label is the id
// after the input. With `document_end`, an id that belongs to the document it ends, `mask` numbers
// the documents of a sequence from 0 and the first id of a document is no label.
class NextToken final : public Batcher {
 public:
  // The source must outlive the batcher. `endless`: for training.
  NextToken(const Source& source, SampleOrder order, std::int64_t global_batch, bool endless,
            std::optional<std::int32_t> document_end = std::nullopt);
  Batch batch(std::int64_t index) const override;
  std::int64_t batches() const override;
  void fill(std::int64_t index, std::int64_t first, std::int64_t count,
            Fields& fields) const override;

 private:
  const Source& source_;
  SampleOrder order_;
  std::int64_t global_batch_;
  bool endless_;
  std::optional<std::int32_t> document_end_;
};

// Reads a rank's part of the next batch in another thread while the caller works on this one.
class Prefetcher {
 public:
  struct Part {
    std::int64_t first = 0, count = 0;           // sequences
    std::map<std::string, std::int64_t> widths;  // of the fields, a sequence
  };
  using PartOf = std::function<Part(const Batcher::Batch&)>;
  // The batcher must outlive the prefetcher.
  Prefetcher(const Batcher& batcher, PartOf part) : batcher_(batcher), part_(std::move(part)) {}

  // Copies the part of any batch into `fields`; the batch after the last is ready or on its way.
  // What reading throws is thrown when the batch is asked for.
  void get(std::int64_t index, Fields& fields);

 private:
  using Data = std::map<std::string, std::vector<std::int32_t>>;
  Data load(std::int64_t index) const;

  const Batcher& batcher_;
  PartOf part_;
  std::int64_t ahead_index_ = -1;
  Data current_;
  std::future<Data> ahead_;  // its destructor waits
};

}  // namespace tfm::data
