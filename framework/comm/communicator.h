#pragma once
// Collectives over one group of ranks, on host memory. Every rank of the group must make the same
// calls in the same order. Sums are added in rank order for every element, so a result depends
// neither on the message's cut into calls nor on timing, is bit-equal on all ranks, and
// reduce_scatter + all_gather equals all_reduce. Groups for tensors of a device (device_mesh.h) are
// made of these; what differs over NCCL is in nccl.h.
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/tensor.h"

namespace tfm::comm {

enum class Collective : std::uint8_t {
  all_reduce_sum,
  all_reduce_max,
  reduce_scatter,
  all_gather,
  broadcast,
  barrier
};
std::string_view name_of(Collective c);  // "all_reduce", "all_reduce_max", "reduce_scatter", ...

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
  virtual void broadcast(Tensor t, int root) = 0;
  virtual void barrier() = 0;
  // Collectives of device tensors are work of the device's stream, in which the host takes no part.
  virtual bool on_stream() const { return false; }
  // Does both. Where collectives are work of a device, those of this group in `collective` run
  // beside what `work` puts on the device's stream; neither touches what the other writes.
  virtual void beside(const std::function<void()>& collective, const std::function<void()>& work) {
    collective();
    work();
  }

  // Split form of reduce_scatter / all_reduce for overlap: start posts the messages and returns,
  // finish completes the oldest started one. The tensor must not be touched in between. scatter:
  // only part rank() of `t` holds the sum afterwards.
  virtual void reduce_start(Tensor t, bool scatter) = 0;
  virtual void reduce_finish() = 0;

  // Bytes of staging memory that a group holds on each rank for reductions of `bytes` bytes; known
  // before launch. It is allocated once with the group, whatever the length and number of the
  // reductions in flight. 0 in a group of one.
  static std::int64_t staging_bytes(std::int64_t bytes, int size);
};

}  // namespace tfm::comm
