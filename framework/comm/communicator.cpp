#include "comm/communicator.h"

#include "comm/staged.h"

namespace tfm::comm {

std::string_view name_of(Collective c) {
  switch (c) {
    case Collective::all_reduce_sum:
      return "all_reduce";
    case Collective::all_reduce_max:
      return "all_reduce_max";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::all_gather:
      return "all_gather";
    case Collective::ring_shift:
      return "ring_shift";
    case Collective::all_to_all:
      return "all_to_all";
    case Collective::broadcast:
      return "broadcast";
    case Collective::barrier:
      return "barrier";
    case Collective::send:
      return "send";
    case Collective::receive:
      return "receive";
  }
  return "?";
}

void Communicator::run(Collective kind, Tensor in, Tensor out) {
  switch (kind) {
    case Collective::all_reduce_sum:
    case Collective::all_reduce_max:
      TFM_CHECK(in.data == out.data, "an all_reduce is in place");
      return all_reduce(out, kind);
    case Collective::reduce_scatter:
      return reduce_scatter(in, out);
    case Collective::all_gather:
      return all_gather(in, out);
    case Collective::ring_shift:
      return ring_shift(in, out);
    case Collective::all_to_all:
      return all_to_all(in, out);
    case Collective::broadcast:
    case Collective::barrier:
    case Collective::send:
    case Collective::receive:
      break;
  }
  internal_error("a " + std::string(name_of(kind)) + " has no tensors `in` and `out`");
}

std::int64_t Communicator::staging_bytes(int size) {
  return size > 1 ? StagedCommunicator::kSlots * StagedCommunicator::slot_bytes(size) : 0;
}

}  // namespace tfm::comm
