#pragma once
// Which cores a rank runs on, and how many threads it starts there.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/mpi.h"
#include "launch/support/topology.h"

namespace tfm::launch {

// The number of threads of a local rank: ranks of a node share the cores that they may run on; at
// least 1. `ranks`: the cores of each local rank; `quota`: CPU time per wall-clock time that all
// ranks have together.
int threads_on(const std::vector<Cpus>& ranks, int local_rank, std::optional<double> quota = {});

// Whether Open MPI bound this rank although nobody asked for it: there is no binding, list of cores
// or number of cores per rank in the launch's environment (version 4) or in the words of its
// `launcher` (version 5, which tells its ranks nothing; false if this host's launcher is not the
// user's).
bool bound_by_default(const std::map<std::string, std::string>& environment,
                      const std::vector<std::string>& launcher);

struct NodeCpus {
  // The CPUs that the launcher, and thus its job, may use; empty: it bound no rank.
  Cpus cpus;
  // Ranks share `cpus`: nobody asked for the launcher's binding.
  bool shared = false;
};
// To be called before take_cores().
NodeCpus cpus_of_node();

// libgomp counts the CPUs of a process once, when it is loaded, and the threads of a larger team
// sleep at each barrier instead of spinning for a while. Where ranks share the node's CPUs and the
// launcher bound this one to fewer than its share, starts the program again on these. To be called
// before anything else; returns where there is nothing to do.
void restart_on_share(char** argv);

struct RankCores {
  int threads = 1;
  Cpus cpus;      // on which this rank may run
  int share = 1;  // of the node's cores, if all its ranks are treated alike
  // Cores on which any rank of the node may run, limited by their quota.
  int together = 1;
  int ranks = 1;  // on this node
  // Ranks of some node of the job have more threads than cores.
  bool oversubscribed = false;
  // Set on rank 0 if ranks have fewer cores than their share of the node.
  std::string warning;
};
// Collective over the session. If ranks share the node's CPUs, binds this rank to its share; call
// it before threads start. `gpu`: the PCI bus id of its GPU, "" if it computes on the CPU. If
// OMP_NUM_THREADS is set, it is the number of threads.
RankCores take_cores(const comm::MpiSession* session, const NodeCpus& node,
                     const std::string& gpu = {});

std::string cpu_model();  // the kernel's name for it, or ""

// Cores that this process may use, limited by its quota.
int cores_at_hand();

// The threads of a rank that will share this machine with others; known before launch.
int threads_of_rank(int ranks_of_node);

}  // namespace tfm::launch
