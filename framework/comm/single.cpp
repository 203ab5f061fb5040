// A group of one rank: every collective is a copy or nothing.
#include <cstring>
#include <utility>

#include "comm/communicator.h"
#include "comm/mesh.h"
#include "comm/staged.h"

namespace tfm::comm {
namespace {

class SingleCommunicator final : public Communicator {
 public:
  explicit SingleCommunicator(CopyBytes copy) : copy_(std::move(copy)) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce(Tensor, Collective) override {}
  void reduce_scatter(Tensor in, Tensor out) override { copy(in, out); }
  void all_gather(Tensor in, Tensor out) override { copy(in, out); }
  void ring_shift(Tensor in, Tensor out) override { copy(in, out); }
  void broadcast(Tensor, int root) override {
    TFM_CHECK(root == 0, "the root must be a rank of the group");
  }
  void barrier() override {}
  Ticket start(Collective kind, Tensor in, Tensor out) override {
    run(kind, in, out);
    return 0;
  }
  void finish(Ticket) override {}

 private:
  void copy(const Tensor& from, const Tensor& to) const {
    TFM_CHECK(from.dtype == to.dtype && from.elements() == to.elements(),
              "in a group of one rank, `in` and `out` have the same size");
    if (from.data != to.data && from.bytes() > 0) copy_(to.data, from.data, from.bytes());
  }

  CopyBytes copy_;
};

}  // namespace

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
    case Collective::broadcast:
    case Collective::barrier:
    case Collective::send:
    case Collective::receive:
      break;
  }
  internal_error("a " + std::string(name_of(kind)) + " has no tensors `in` and `out`");
}

void Communicator::send(Tensor, Tensor, int, int) {
  internal_error("this group of ranks exchanges no messages");
}
void Communicator::receive(Tensor, int, int) {
  internal_error("this group of ranks exchanges no messages");
}

std::int64_t Communicator::staging_bytes(std::int64_t, int size) {
  return size > 1 ? StagedCommunicator::kSlots * StagedCommunicator::slot_bytes(size) : 0;
}

std::shared_ptr<Communicator> single_communicator(CopyBytes copy) {
  if (!copy)
    copy = [](void* to, const void* from, std::int64_t bytes) {
      std::memmove(to, from, static_cast<std::size_t>(bytes));
    };
  return std::make_shared<SingleCommunicator>(std::move(copy));
}

Communicator& Mesh::group(AxisSet axes) const {
  const auto& group = groups_[axes.bits()];
  TFM_CHECK(group, "the mesh has no group of axes " + name_of(axes));
  return *group;
}

Mesh Mesh::without(AxisSet axes) const {
  Mesh mesh = *this;
  mesh.layout = layout.without(axes);
  return mesh;
}

Mesh single_mesh() {
  Mesh mesh;
  for (const AxisSet axes : Layout().groups()) mesh.handle(axes) = single_communicator();
  return mesh;
}

}  // namespace tfm::comm
