#pragma once
// The part of each batch that one rank computes, read ahead of its use.
#include <future>
#include <vector>

#include "data/dataset.h"
#include "nn/model.h"

namespace tfm::data {

struct LoaderOptions {
  std::int64_t rank = 0, ranks = 1;  // that share out each batch
  std::int64_t batches = 0;          // after which nothing is read ahead; 0: no end

  static LoaderOptions of(const comm::Mesh& mesh, std::int64_t batches = 0) {
    return {mesh.place(nn::kBatchAxes), mesh.layout.size(nn::kBatchAxes), batches};
  }
};

// Reads a rank's part of the next batch in another thread while the caller works on this one.
//
// Ranks take their parts in turn: in round r, rank k of n computes sequences
// [(r n + k) size, (r n + k + 1) size) of the global batch, where size is that of its part. What
// lies past the end of the batch is padding. Training has one round a batch.
class DataLoader {
 public:
  // What a rank computes at a time of the batches of one shape.
  struct RankShape {
    std::int64_t sequences = 0;
    std::map<Field, std::int64_t> widths;  // elements of a sequence
    // Of ranks that share out each sequence: this rank's elements only, in the order of core/rows.h
    // for so many sequences at a time.
    SequenceShare share = {};
    std::int64_t together = 0;

    std::int64_t elements(Field field) const;  // of this rank
  };
  // What a recording reads, for `sequences` sequences.
  static RankShape rank_shape(const nn::Recording& recording, std::int64_t sequences);

  // `shapes`: in the order of the global batches'. The dataset and `memory` must outlive this.
  // `memory`: of the fields of the largest part, for example page-locked, of several batches that
  // are filled by turns; none: of one, its own.
  DataLoader(const Dataset& dataset, std::vector<RankShape> shapes, const LoaderOptions& options,
             std::vector<BatchFields> memory = {});
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  std::int64_t rounds(std::int64_t index) const;  // of a batch, that all ranks take
  // Any batch; the one after the last is ready or on its way. Valid until its memory's next turn,
  // with memory of one batch until the next call. What reading throws is thrown when the batch is
  // asked for.
  const Batch& load(std::int64_t index, std::int64_t round = 0);

 private:
  struct Key {
    std::int64_t index = -1, round = 0;
    bool operator==(const Key&) const = default;
  };
  struct Data {
    Batch batch;  // its fields lie in `values`
    std::map<Field, std::vector<std::int32_t>> values;
  };
  Data read(Key key) const;
  void cut(const RankShape& shape, Data& data) const;
  Key after(Key key) const;  // index -1: none

  const Dataset& dataset_;
  std::vector<RankShape> shapes_;
  LoaderOptions options_;
  std::vector<BatchFields> memory_;
  std::map<Field, std::vector<std::int32_t>> own_memory_;
  std::vector<Batch> batches_;  // as `memory_`
  std::size_t turn_ = 0;
  Key ahead_key_;
  std::future<Data> ahead_;  // its destructor waits
};

}  // namespace tfm::data
