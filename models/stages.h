#pragma once
// Distribution of a model over a pipeline. The blocks of all stacks, in order of use, are divided
// into stages of consecutive blocks, as given by parallel.layers_per_stage or else with balanced
// costs. Embeddings belong to the stage of the first block that reads them, the head to the last
// stage. Of P ranks, rank r has the (virtual) stages r, P + r, 2 P + r, ..., each a chunk of its
// recording.
#include <utility>
#include <vector>

#include "config/config.h"
#include "nn/model.h"

namespace tfm::models {

class Stages {
 public:
  Stages(const config::Config& config, const comm::Mesh& mesh);
  int ranks() const { return ranks_; }
  int rank_of(int stage) const { return stage % ranks_; }
  bool own(int stage) const { return rank_of(stage) == own_; }
  int count() const { return of_.back() + 1; }
  std::int64_t blocks() const { return std::ssize(of_); }
  std::vector<std::int64_t> blocks_per_stage() const;
  int of(std::int64_t block) const { return of_[static_cast<std::size_t>(block)]; }
  int rank_of_block(std::int64_t block) const { return rank_of(of(block)); }
  int last_rank() const { return rank_of(of_.back()); }
  // Whether this rank has one of the blocks [first, first + n).
  bool has(std::int64_t first, std::int64_t n) const;

 private:
  int ranks_, own_;
  std::vector<int> of_;  // by block: its stage
};

// The stage that a recording has reached. Only the ranks of that stage record ops.
class Relay {
 public:
  // Starts at stage 0, and records the exchange of gradients of lent and borrowed parameters.
  Relay(nn::Recording& rec, const Stages& stages, const nn::Context& context, std::int64_t width);
  bool here() const { return stages_.own(at_); }
  // Advances to `stage`. `values`, each with its rows, which are outside the tensor-parallel
  // region, are passed from stage to stage; they are cleared where sent. Returns whether this rank
  // received them.
  bool pass_to(int stage, const std::vector<std::pair<graph::Value*, Rows>>& values);

 private:
  graph::Recorder& r_;
  const Stages& stages_;
  const nn::Context& context_;
  std::int64_t width_;
  // Current stage; last chunk of this rank that was reached, -1: none.
  int at_ = 0, chunk_ = -1;
};

}  // namespace tfm::models
