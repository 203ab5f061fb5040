#pragma once
// Runs collectives exactly as a plan declared them: what is listed, predicted and hashed is what
// executes.
#include <vector>

#include "comm/mesh.h"

namespace tfm::comm {

// Runs `call` on its group of `mesh`. The larger of `in` and `out` must have call.bytes bytes. For
// a send, `in` is the message and `out` its buffer; a receive uses `out` only.
void run(const Mesh& mesh, const CollectiveCall& call, Tensor in, Tensor out);

// Calls Messages::complete_sends(); does nothing without a pipeline.
void complete_sends(const Mesh& mesh);

// Runs a list of declared calls in order. Refers to the mesh and the list, which must outlive it.
class Calls {
 public:
  Calls(const Mesh& mesh, const std::vector<CollectiveCall>& list) : mesh_(mesh), list_(list) {}
  void next(Tensor in, Tensor out);
  void next(Tensor t) { next(t, t); }
  void finish() const;  // checks that every declared call has run

 private:
  const Mesh& mesh_;
  const std::vector<CollectiveCall>& list_;
  std::size_t done_ = 0;
};

}  // namespace tfm::comm
