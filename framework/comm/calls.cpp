#include "comm/calls.h"

#include <algorithm>

namespace tfm::comm {

void run(const Mesh& mesh, const CollectiveCall& call, Tensor in, Tensor out) {
  TFM_CHECK(std::max(in.bytes(), out.bytes()) == call.bytes, "a collective differs from its plan");
  Communicator& group = mesh.group(call.axes);
  if (call.kind == Collective::send)
    group.send(in, out, call.peer, call.tag);
  else if (call.kind == Collective::receive)
    group.receive(out, call.peer, call.tag);
  else
    group.run(call.kind, in, out);
}

void complete_sends(const Mesh& mesh) {
  if (mesh.layout[Axis::pipeline] > 1) mesh.group(Axis::pipeline).complete_sends();
}

void Calls::next(Tensor in, Tensor out) {
  TFM_CHECK(done_ < list_.size(), "a collective that was not declared");
  run(mesh_, list_[done_++], in, out);
}

void Calls::finish() const {
  TFM_CHECK(done_ == list_.size(), "a declared collective did not run");
}

}  // namespace tfm::comm
