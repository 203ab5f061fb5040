#pragma once
// Base class of the pipeline's process groups, whatever the transport of their messages.
#include <compare>
#include <utility>
#include <vector>

#include "comm/communicator.h"

namespace tfm::comm {

// The messages of one tag from one rank to another, both as indices in the group.
struct Channel {
  int from = 0, to = 0, tag = 0;
  friend auto operator<=>(const Channel&, const Channel&) = default;
};

class MessageGroup : public Communicator {
 public:
  // `ranks`: the group's ranks of the job. `rank`: this rank's index among them.
  MessageGroup(std::vector<int> ranks, int rank) : ranks_(std::move(ranks)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  void all_reduce(Tensor, Collective) override { refuse(); }
  void reduce_scatter(Tensor, Tensor) override { refuse(); }
  void all_gather(Tensor, Tensor) override { refuse(); }
  void ring_shift(Tensor, Tensor) override { refuse(); }
  void broadcast(Tensor, int) override { refuse(); }
  void barrier() override { refuse(); }
  Ticket start(Collective, Tensor, Tensor) override { refuse(); }
  void finish(Ticket) override { refuse(); }

 protected:
  int of_job(int place) const { return ranks_[static_cast<std::size_t>(place)]; }

 private:
  [[noreturn]] static void refuse() {
    internal_error("the ranks of a pipeline exchange messages only");
  }

  std::vector<int> ranks_;
  int rank_;
};

}  // namespace tfm::comm
