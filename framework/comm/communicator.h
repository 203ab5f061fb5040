#pragma once
// Collectives over one process group, on host memory. Every rank of the group must make the same
// calls in the same order.
//
// Sums are associated per element as a fixed binary tree: the sum of the first half of the ranks
// plus that of the second half, recursively. Reducing over subgroups first gives the same tree. A
// result depends neither on how a message is cut into pieces nor on timing, is bit-equal on all
// ranks, and reduce_scatter + all_gather equals all_reduce.
//
// device_mesh.h makes groups for device tensors from these; nccl.h states what differs under NCCL.
#include <cstdint>
#include <string_view>
#include <tuple>

#include "comm/axis.h"
#include "core/tensor.h"

namespace tfm::comm {

enum class Collective : std::uint8_t {
  all_reduce_sum,
  all_reduce_max,
  reduce_scatter,
  all_gather,
  ring_shift,
  all_to_all,
  broadcast,
  barrier,
  // The two halves of a point-to-point message.
  send,
  receive
};
std::string_view name_of(Collective c);  // "all_reduce", "all_reduce_max", "reduce_scatter", ...

// What a collective is for.
enum class Purpose : std::uint8_t {
  none,
  gradients,        // of a bucket, summed
  parameters,       // of a bucket, gathered
  layers,           // of a model, from here on: values and their gradients
  cross_attention,  // in layers
  embedding,
  head,
  softmax,      // statistics of a split vocabulary's
  activations,  // between pipeline stages, with their gradients
  borrowed,     // parameters that several pipeline stages use, and their gradients
  totals,       // of labels and losses
  norm,         // of the gradient
  optimizer
};

// A collective as a plan declares it before it runs. Predictions, the collective hash, execution
// and the flight recorder all use the same declaration.
struct CollectiveCall {
  Collective kind = Collective::barrier;
  AxisSet axes;
  std::int64_t bytes = 0;  // of the whole tensor, not of one rank's part
  Purpose purpose = Purpose::none;
  // For a point-to-point message: the peer's index in the group, and the tag that distinguishes the
  // messages between the two ranks.
  int peer = -1, tag = 0;
  // Whether the same is exchanged, for whatever purpose.
  friend bool operator==(const CollectiveCall& a, const CollectiveCall& b) {
    return std::tie(a.kind, a.axes, a.bytes, a.peer, a.tag) ==
           std::tie(b.kind, b.axes, b.bytes, b.peer, b.tag);
  }
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Sum or maximum in place over `t`, of any DType. Does nothing in a group of one rank.
  virtual void all_reduce(Tensor t, Collective kind = Collective::all_reduce_sum) = 0;
  // `in` has size() equal parts; `out`, of in.elements() / size() elements, receives the sum of
  // part rank(). `out` may alias that part of `in`.
  virtual void reduce_scatter(Tensor in, Tensor out) = 0;
  // `out` has size() equal parts; part r receives rank r's `in`. `in` may alias this rank's part.
  virtual void all_gather(Tensor in, Tensor out) = 0;
  // One hop around the ring: `out` receives the `in` of previous().
  virtual void ring_shift(Tensor in, Tensor out) = 0;
  // Both have size() equal parts: part r of `out` receives part rank() of rank r's `in`.
  virtual void all_to_all(Tensor in, Tensor out) = 0;
  virtual void broadcast(Tensor t, int root) = 0;
  virtual void barrier() = 0;
  // Whether collectives are enqueued on the device's stream and need no action by the host.
  virtual bool on_stream() const { return false; }
  // Neighbours in the ring.
  int next() const { return (rank() + 1) % size(); }
  int previous() const { return (rank() + size() - 1) % size(); }
  // Runs an all_reduce (in place: `in` is `out`), a reduce_scatter, an all_gather, a ring_shift or
  // an all_to_all.
  void run(Collective kind, Tensor in, Tensor out);
  // Nonblocking run(): start() posts the collective and returns, if need be once other ranks have
  // started theirs; finish() completes it, and other work can overlap. Between the two, nobody may
  // touch `out` or write `in`. Several may be in flight. All ranks must start them in the same
  // order and finish them in the same order.
  using Ticket = std::uint64_t;
  virtual Ticket start(Collective kind, Tensor in, Tensor out) = 0;
  virtual void finish(Ticket ticket) = 0;

  // Bytes of staging memory that a group of `size` ranks holds on each rank, whatever the length
  // and number of the reductions in flight. 0 in a group of one.
  static std::int64_t staging_bytes(int size);
};

}  // namespace tfm::comm
