#pragma once
// The job that the distributed tests run in; made by main.
#include <string>

#include "comm/messages.h"
#include "comm/mpi.h"
#include "comm/watchdog.h"

namespace tfm::test {

const comm::MpiSession& job();

// Of a layout, made once: a job keeps the memory of its groups until it ends.
const comm::Mesh& mesh_of(comm::Layout layout);

// All layouts of the job's ranks: (1, n), (2, n/2), ..., (n, 1).
std::vector<comm::Layout> layouts();

// Two sums of 1000 floats on the data axis, between which `rank` does what `how` says: hang, die or
// fail. Or, with "message" behind that, two exchanges of as many floats between two stages. Only
// the watchdog ends it, which waits for a second after the first of them.
inline bool in_messages(const std::string& how) { return how.ends_with("-message"); }
void misbehave(const comm::Mesh& mesh, comm::Watchdog& watchdog, const std::string& how, int rank);

// Messages both ways between the two stages of a mesh; what is received is in `t`.
inline void exchange(const comm::Mesh& mesh, const Tensor& t, const Tensor& buffer) {
  comm::Messages& stages = *mesh.messages;
  const int stage = mesh.place(comm::Axis::pipeline), other = 1 - stage;
  if (stage == 0) stages.send(t, buffer, other, 0);
  stages.receive(t, other, 0);
  if (stage == 1) stages.send(t, buffer, other, 0);
  stages.complete_sends();
}

}  // namespace tfm::test
