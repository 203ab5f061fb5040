#pragma once
// Next-token prediction on whole documents (Ding et al. 2024, "Fewer truncations improve language
// modeling").
//
// A document of n ids takes n - 1 places of a sequence: inputs are all ids but the last, labels the
// ids after them. Sequences of train.seq_len hold several documents, packed by best fit; attention
// stays within a document, and positions count over the whole sequence. A document that is longer
// than a sequence fills as many as it can; what is left of it is packed as the others are.
#include "data/next_token.h"

namespace tfm::data {

class PackedText final : public Dataset {
 public:
  struct Options {
    std::int64_t length = 0, global_batch = 0;
    bool endless = false, shuffle = false;
    std::uint64_t seed = 0;
    std::optional<FillInMiddle> middle = {};
  };
  // Reads all ids, to find where documents end, unless files say so. `source` must outlive this.
  // Error(input) if no document has two ids.
  PackedText(const Source& source, const DocumentEnds& ends, const Options& options);
  GlobalBatch batch(std::int64_t index) const override;
  std::int64_t batches() const override { return ceil_div(sequences(), options_.global_batch); }
  void fill(std::int64_t index, std::int64_t first, std::int64_t count,
            const BatchFields& fields) const override;

  std::int64_t documents() const { return documents_; }
  std::int64_t sequences() const { return std::ssize(packed_); }
  std::int64_t cut() const { return cut_; }  // documents longer than a sequence
  double filled() const;                     // share of places

 private:
  struct Piece {
    std::size_t stream;
    std::int64_t begin, places;
  };
  void add(std::size_t stream, std::int64_t begin, std::int64_t end);

  const Source& source_;
  Options options_;
  std::int64_t documents_ = 0, cut_ = 0, places_ = 0;
  std::vector<Piece> pieces_;
  std::vector<std::vector<std::size_t>> packed_;  // the pieces of each sequence
  std::optional<Sampler> sampler_;
};

}  // namespace tfm::data
