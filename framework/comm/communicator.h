#pragma once
// Collectives over one group of ranks, on host memory. Every rank of the group must make the same
// calls in the same order. Sums are those of the ranks' first half and of its second half, each
// made alike, for every element: the same in groups that sum apart first. So a result depends
// neither on the message's cut into calls nor on timing, is bit-equal on all ranks, and
// reduce_scatter + all_gather equals all_reduce. Groups for tensors of a device (device_mesh.h) are
// made of these; what differs over NCCL is in nccl.h.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "comm/axis.h"
#include "core/tensor.h"

namespace tfm::comm {

enum class Collective : std::uint8_t {
  all_reduce_sum,
  all_reduce_max,
  reduce_scatter,
  all_gather,
  ring_shift,
  broadcast,
  barrier,
  send,  // these two are halves of a message between two ranks
  receive
};
std::string_view name_of(Collective c);  // "all_reduce", "all_reduce_max", "reduce_scatter", ...

// A collective as plans know it before it runs: what is predicted and hashed is what a program runs
// and what the flight recorder sees.
struct CollectiveCall {
  Collective kind = Collective::barrier;
  AxisSet axes;
  std::int64_t bytes = 0;  // of the whole tensor
  // Of a message: the other rank's place in the group, and which of the messages between the two.
  int peer = -1, tag = 0;
  friend bool operator==(const CollectiveCall&, const CollectiveCall&) = default;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // In place over `t` (f32, f64, i32, i64). A group of one does nothing.
  virtual void all_reduce(Tensor t, Collective kind = Collective::all_reduce_sum) = 0;
  // `in` has size() equal parts; `out` (in.elements()/size()) receives the sum of part rank().
  // `out` may be that part of `in`.
  virtual void reduce_scatter(Tensor in, Tensor out) = 0;
  // `out` has size() equal parts; part r is rank r's `in`. `in` may be that part of `out`.
  virtual void all_gather(Tensor in, Tensor out) = 0;
  // One hop of a ring: `out` is the `in` of the rank before, the last one before the first.
  virtual void ring_shift(Tensor in, Tensor out) = 0;
  virtual void broadcast(Tensor t, int root) = 0;
  virtual void barrier() = 0;
  // Messages, between the ranks of a pipeline only; those of equal tags keep their order. `t` may
  // be written again when send() returns: the message is in `buffer`, as large, which is the
  // communicator's until it is sent. It waits for the message of the same tag before it.
  virtual void send(Tensor t, Tensor buffer, int to, int tag);
  virtual void receive(Tensor t, int from, int tag);
  // What follows on the device's stream comes after all messages sent so far have been received, so
  // that it may write their buffers. On host memory a sum over the ranks says the same.
  virtual void complete_sends() {}
  // Collectives of device tensors are work of the device's stream, in which the host takes no part.
  virtual bool on_stream() const { return false; }
  // In a ring.
  int next() const { return (rank() + 1) % size(); }
  int previous() const { return (rank() + size() - 1) % size(); }
  // An all_reduce (of `in`, which is `out`), a reduce_scatter, an all_gather or a ring_shift.
  void run(Collective kind, Tensor in, Tensor out);
  // The same in two halves, so that other work runs beside it: start posts it and returns; finish
  // completes it. In between nobody touches `out` or writes `in`. Several may be under way; the
  // order of starts and of finishes is the same on all ranks.
  using Ticket = std::uint64_t;
  virtual Ticket start(Collective kind, Tensor in, Tensor out) = 0;
  virtual void finish(Ticket ticket) = 0;

  // Bytes of staging memory that a group holds on each rank for reductions of `bytes` bytes; known
  // before launch. It is allocated once with the group, whatever the length and number of the
  // reductions in flight. 0 in a group of one.
  static std::int64_t staging_bytes(std::int64_t bytes, int size);
};

}  // namespace tfm::comm
