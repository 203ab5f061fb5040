#pragma once
// The MPI side of a job: its start, its end and the mesh of its ranks. MPI failures are
// Error(environment).
#include <memory>

#include "comm/consensus.h"
#include "comm/mesh.h"
#include "comm/start_wait.h"

namespace tfm::comm {

// Starts MPI. MPI is finalized when the session and all communicators made from it are gone. If an
// exception unwinds them in a job of several ranks, MPI is left open: the launcher then ends the
// other ranks, which may be waiting, and passes on the exit code.
class MpiSession {
 public:
  // `timeout`: seconds that this rank waits for the others at the start and in gather(); see
  // StartWait.
  explicit MpiSession(double timeout = kStartTimeout);

  int rank() const;
  int size() const;
  int local_rank() const;      // among the ranks of this node
  int ranks_per_node() const;  // on this node

  // Every rank's value, in rank order. Collective over the ranks of the scope.
  enum class Scope : std::uint8_t { job, node };
  std::vector<std::string> gather(const std::string& text, Scope scope) const;
  template <Packable T>
  std::vector<T> gather(const T& mine, Scope scope) const {
    return unpack_each<T>(gather(pack(mine), scope));
  }

  // Ends all ranks of the job, from any thread, with this exit code.
  [[noreturn]] static void abort(int code);

  struct State;
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

// Collective over all ranks. Groups within one node communicate through shared memory, the other
// groups, and the pipeline's, by MPI messages; all_to_alls over nodes with equal shares of their
// group as nodewise.h says. Error(environment) unless the job has layout.world() ranks.
// `node_ranks`: for tests, as if that many consecutive ranks were a node.
Mesh make_mesh(const MpiSession& session, Layout layout, int node_ranks = 0);

}  // namespace tfm::comm
