#pragma once
// How a pipeline shares out a model: its blocks, of all stacks in the order of use, in stages of
// blocks that follow each other, as parallel.layers_per_stage says or else so that their costs are
// balanced. Embeddings are where the first block is that reads them, the head is behind the last
// one. Where ranks have several (virtual) stages, each is a chunk of its recording: of P ranks rank
// r has the stages r, P + r, 2 P + r ...
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
  std::vector<int> of_;  // by block
};

// The stage that a recording has reached. What is recorded on it is recorded by its ranks only.
class Relay {
 public:
  // With the gradients of the parameters that are lent and borrowed.
  Relay(nn::Recording& rec, const Stages& stages, const nn::Context& context, std::int64_t width);
  bool here() const { return stages_.own(at_); }
  // On to `stage`, which gets these values, of rows outside the tensor-parallel region, as do all
  // between. Whether this rank got them.
  bool pass_to(int stage, const std::vector<std::pair<graph::Value*, Rows>>& values);

 private:
  graph::Recorder& r_;
  const Stages& stages_;
  const nn::Context& context_;
  std::int64_t width_;
  int at_ = 0, chunk_ = -1;  // of this rank's, the one that was reached last
};

}  // namespace tfm::models
