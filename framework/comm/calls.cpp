#include "comm/calls.h"

#include <algorithm>

#include "comm/messages.h"

namespace tfm::comm {

void run(const Mesh& mesh, const CollectiveCall& call, Tensor in, Tensor out) {
  TFM_CHECK(std::max(in.bytes(), out.bytes()) == call.bytes, "a collective differs from its plan");
  if (call.kind == Collective::send)
    mesh.messages->send(in, out, call.peer, call.tag);
  else if (call.kind == Collective::receive)
    mesh.messages->receive(out, call.peer, call.tag);
  else
    mesh.group(call.axes).run(call.kind, in, out);
}

void complete_sends(const Mesh& mesh) {
  if (mesh.messages) mesh.messages->complete_sends();
}

void Calls::next(Tensor in, Tensor out) {
  TFM_CHECK(done_ < list_.size(), "a collective that was not declared");
  run(mesh_, list_[done_++], in, out);
}

void Calls::finish() const {
  TFM_CHECK(done_ == list_.size(), "a declared collective did not run");
}

}  // namespace tfm::comm
