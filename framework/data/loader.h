#pragma once
// The part of each batch that one rank computes, read ahead of its use.
#include <future>
#include <vector>

#include "data/dataset.h"
#include "nn/model.h"

namespace tfm::data {

struct LoaderOptions {
  std::int64_t rank = 0, ranks = 1;  // this rank among those that share each batch
  std::int64_t batches = 0;          // after which nothing is read ahead; 0: no end

  static LoaderOptions of(const comm::Mesh& mesh, std::int64_t batches = 0) {
    return {mesh.place(nn::kBatchAxes), mesh.layout.size(nn::kBatchAxes), batches};
  }
};

// Reads a rank's part of the next batch in another thread while the caller works on this one.
//
// Ranks take their parts in rounds: in round r, rank k of n computes the RankShape::sequences
// sequences of the global batch from (r n + k) RankShape::sequences on. Beyond the end of the batch
// there is padding. Training has one round per batch.
class DataLoader {
 public:
  // A rank's part of a batch of one shape, in one round.
  struct RankShape {
    std::int64_t sequences = 0;
    std::map<Field, std::int64_t> widths;  // elements of a sequence
    // If ranks share each sequence (context parallelism): this rank's share. Its elements are in
    // the order of core/rows.h, for `together` sequences at a time.
    SequenceShare share = {};
    std::int64_t together = 0;

    std::int64_t elements(Field field) const;  // of this rank
  };
  // The part that a recording reads, for `sequences` sequences.
  static RankShape rank_shape(const nn::Recording& recording, std::int64_t sequences);

  // `shapes`: one per shape of the global batches, in their order. `memory`: for the fields of the
  // largest part, for example page-locked, of several batches that are filled in turn; empty: the
  // loader's own, of one batch. The dataset and the memory must outlive this.
  DataLoader(const Dataset& dataset, std::vector<RankShape> shapes, const LoaderOptions& options,
             std::vector<BatchFields> memory = {});
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  std::int64_t rounds(std::int64_t index) const;  // rounds in which the ranks compute a batch
  // Returns a part of any batch; the part after the last one loaded is ready or being read. It is
  // valid until its memory's next turn; with memory of one batch, until the next call. Rethrows
  // what reading it threw.
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
