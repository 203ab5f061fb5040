#pragma once
// Which cores a rank runs on, and how many threads it starts there.
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/mpi.h"
#include "launch/support/topology.h"

namespace tfm::launch {

// Cores that ranks of a node may run on are shared by those ranks; at least 1. `ranks`: the cores
// of each local rank; `quota`: CPU time per time that they have together.
int threads_on(const std::vector<Cpus>& ranks, int local_rank, std::optional<double> quota = {});

// Open MPI bound this rank and nobody asked for it: no binding, list of cores or number of cores
// a rank in the launch's environment (version 4) or in the words of its `launcher` (version 5,
// which tells its ranks nothing; false where this host's launcher is not the user's).
bool bound_by_default(const std::map<std::string, std::string>& environment,
                      const std::vector<std::string>& launcher);

struct NodeCpus {
  Cpus cpus;            // that the launcher, and so its job, may use; empty: it bound no rank
  bool shared = false;  // ranks share them: nobody asked for the launcher's binding
};
// Call it before take_cores().
NodeCpus cpus_of_node();

struct RankCores {
  int threads = 1;
  Cpus cpus;         // that this rank may run on
  int share = 1;     // of the node's, with all ranks of the node treated alike
  int together = 1;  // cores that any rank of the node may run on, at most what its quota allows
  int ranks = 1;     // on this node
  bool oversubscribed = false;  // on some node of the job, ranks have more threads than cores
  std::string warning;  // on rank 0, where ranks have fewer cores than their share of the node
};
// Collective over the session. Where ranks share the node's CPUs, binds this rank to its share;
// call it before threads start. `gpu`: the PCI bus id of its GPU, empty where it computes on the
// CPU. OMP_NUM_THREADS, where it is set, is the number of threads.
RankCores take_cores(const comm::MpiSession* session, const NodeCpus& node,
                     const std::string& gpu = {});

std::string cpu_model();  // as the kernel names it; empty: it does not

// Cores that this process may use, at most what its quota allows.
int cores_at_hand();

// The threads of a rank that will share this machine with others, before launch.
int threads_of_rank(int ranks_of_node);

}  // namespace tfm::launch
