#pragma once
// Collectives that run as they were declared: what a plan lists, predicts and hashes is what runs.
#include <vector>

#include "comm/mesh.h"

namespace tfm::comm {

// The larger one of `in` and `out` has the call's bytes; of a send `out` is the buffer.
void run(const Mesh& mesh, const CollectiveCall& call, Tensor in, Tensor out);

// Communicator::complete_sends() of the stages of a pipeline; nothing without one.
void complete_sends(const Mesh& mesh);

// A list of them, one after the other.
class Calls {
 public:
  Calls(const Mesh& mesh, const std::vector<CollectiveCall>& list) : mesh_(mesh), list_(list) {}
  void next(Tensor in, Tensor out);
  void next(Tensor t) { next(t, t); }
  void finish() const;  // all of them have run

 private:
  const Mesh& mesh_;
  const std::vector<CollectiveCall>& list_;
  std::size_t done_ = 0;
};

}  // namespace tfm::comm
