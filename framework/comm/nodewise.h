#pragma once
// All-to-alls over several nodes in two steps (Hwang et al. 2022, Tutel; Nie et al. 2022, HetuMoE):
// the ranks of a node first hand each other, through shared memory, what is for the ranks of their
// own index on other nodes; then each sends one message a node instead of one a rank. Only data
// move, so results are those of the direct exchange.
#include <deque>
#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace tfm::comm {

class NodewiseCommunicator final : public Communicator {
 public:
  // The group's rank is node * near.size() + index. `flat` has all ranks and runs every other
  // collective; `near`, those of this rank's node; `far`, those of its index, one a node.
  NodewiseCommunicator(std::shared_ptr<Communicator> flat, std::shared_ptr<Communicator> near,
                       std::shared_ptr<Communicator> far);

  // Bytes of one of the four buffers that a rank has for each all_to_all in flight; a longer one
  // goes in pieces, which fit the slots of `far`.
  static constexpr std::int64_t kPieceBytes = std::int64_t{960} << 10;

  int rank() const override { return flat_->rank(); }
  int size() const override { return flat_->size(); }
  void all_reduce(Tensor t, Collective kind) override { flat_->all_reduce(t, kind); }
  void reduce_scatter(Tensor in, Tensor out) override { flat_->reduce_scatter(in, out); }
  void all_gather(Tensor in, Tensor out) override { flat_->all_gather(in, out); }
  void ring_shift(Tensor in, Tensor out) override { flat_->ring_shift(in, out); }
  void all_to_all(Tensor in, Tensor out) override;
  void broadcast(Tensor t, int root) override { flat_->broadcast(t, root); }
  void barrier() override { flat_->barrier(); }
  // The last message of an all_to_all may still be on its way when start() returns, which waits
  // for the ranks of this node.
  Ticket start(Collective kind, Tensor in, Tensor out) override;
  void finish(Ticket ticket) override;

 private:
  // One all_to_all in flight. Pieces are ranges of every part; one piece's message is on its way
  // while the next is handed over within the node.
  struct Exchange {
    Ticket ticket = 0, sent = 0;
    Tensor in, out;
    std::int64_t part = 0, chunk = 0;    // elements
    std::int64_t begin = 0, length = 0;  // of the piece on its way; a length of 0: none
    std::vector<char> packed, handed, sending, receiving;
  };

  void send(Exchange& x, std::int64_t begin);
  void receive(Exchange& x);

  std::shared_ptr<Communicator> flat_, near_, far_;
  std::deque<std::unique_ptr<Exchange>> under_way_;  // in the order of their starts
  std::vector<std::unique_ptr<Exchange>> idle_;      // for their buffers
  Ticket next_ = 1;                                  // odd; twice a ticket of flat_ is even
};

}  // namespace tfm::comm
