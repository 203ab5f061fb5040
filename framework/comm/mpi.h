#pragma once
// The MPI side of a job: start and end, and the mesh of its ranks. Errors of MPI are
// Error(environment).
#include <memory>

#include "comm/consensus.h"
#include "comm/mesh.h"
#include "comm/start_wait.h"

namespace tfm::comm {

// Starts MPI; MPI ends when the session and all communicators made from it are gone. Where an
// exception unwinds them on a job of several ranks, MPI is left open: the launcher then ends the
// other ranks, which may wait, and hands on the exit code.
class MpiSession {
 public:
  // `timeout`: seconds that a rank waits for the others at the start and in gather(), see
  // StartWait.
  explicit MpiSession(double timeout = kStartTimeout);

  int rank() const;
  int size() const;
  int local_rank() const;      // among the ranks of this node
  int ranks_per_node() const;  // on this node

  // Every rank's text, in rank order. Collective over the ranks of the scope.
  enum class Scope : std::uint8_t { job, node };
  std::vector<std::string> gather(const std::string& text, Scope scope) const;

  // Ends all ranks of the job, from any thread, with this exit code.
  [[noreturn]] static void abort(int code);

  struct State;
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

// Collective over all ranks. Groups whose ranks share a node exchange through shared memory, the
// others by messages, as do all with `force_messages`. Throws Error(environment) if the job has not
// layout.world() ranks.
Mesh make_mesh(const MpiSession& session, Layout layout, bool force_messages = false);

}  // namespace tfm::comm
