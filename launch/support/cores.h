#pragma once
// Which cores a rank runs on, and how many threads it starts there.
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/mpi.h"

namespace tfm::launch {

using Cpus = std::vector<int>;  // as the kernel numbers them

// Of `ranks` on a node whose job may use `node`, one after another: neighbors of `node` stay
// together; fewer cores than ranks are shared by all.
Cpus cpus_of_local_rank(const Cpus& node, int local_rank, int ranks);

// Cores that ranks of a node may run on are shared by those ranks; at least 1. `ranks`: the cores
// of each local rank; `quota`: CPU time per time that they have together.
int threads_on(const std::vector<Cpus>& ranks, int local_rank, std::optional<double> quota = {});

// Open MPI bound this rank and nobody asked for it: no binding, list of cores or number of cores
// a rank in the launch's environment (version 4) or in the words of its `launcher` (version 5,
// which tells its ranks nothing; false where this host's launcher is not the user's).
bool bound_by_default(const std::map<std::string, std::string>& environment,
                      const std::vector<std::string>& launcher);

struct RankCores {
  int threads = 1;
  int own = 1;       // cores that this rank may run on
  int share = 1;     // of the node's, with all ranks of the node treated alike
  int together = 1;  // cores that any rank of the node may run on, at most what its quota allows
  int ranks = 1;     // on this node
  bool oversubscribed = false;  // on some node of the job, ranks have more threads than cores
  std::string warning;  // on rank 0, where ranks have fewer cores than their share of the node
};
// Collective over the session. Where the launcher bound this rank by default, binds it anew to its
// share of the node's cores; call it before threads start. OMP_NUM_THREADS, where it is set, is the
// number of threads.
RankCores take_cores(const comm::MpiSession* session);

std::string cpu_model();  // as the kernel names it; empty: it does not

// Cores that this process may use, at most what its quota allows.
int cores_at_hand();

// The threads of a rank that will share this machine with others, before launch.
int threads_of_rank(int ranks_of_node);

}  // namespace tfm::launch
