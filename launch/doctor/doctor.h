#pragma once
// The checks of tfm-doctor. Each is collective over the job and adds its findings, the same on
// every rank.
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/links.h"
#include "launch/doctor/findings.h"

namespace tfm::launch {

// Ends the job with exit code 4 if a single wait lasts longer than `seconds`, and says what it
// waited for.
class Patience {
 public:
  explicit Patience(double seconds);
  ~Patience();
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;
  // This rank begins to wait for something else. `remedy`: what to do if it does not come.
  void wait_for(const std::string& what, const std::string& remedy);

 private:
  double seconds_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::string what_, remedy_;
  bool moved_ = false, stop_ = false;
  std::thread thread_;
};

struct Node {
  std::string host;
  std::vector<int> ranks;  // the first measures for the node
};
// The nodes as MPI sees them, in the order of their first ranks.
std::vector<Node> nodes_of(const Launch& launch);

// What the network between two nodes should reach.
struct Expected {
  double latency = 1e-3;     // seconds
  double bandwidth = 0.1e9;  // bytes/s
};

struct Examination {
  Launch& launch;
  const std::vector<Node>& nodes;
  Patience& patience;
  Findings& findings;

  bool lead() const { return rank_of_launch() == 0; }
  // "node a rank 3"
  std::string name_of(int rank) const;
};

// Checks that the launcher and MPI agree on the ranks; reports the ranks per node. False: each
// process is alone.
bool check_launch(const Examination& e);
// Checks that all ranks have one build and one configuration. False: further checks would differ
// between ranks. `config`: this rank's; if it has none, `unreadable` says why.
bool check_settings(const Examination& e, const config::Config* config,
                    const std::optional<Error>& unreadable);
void check_cores(const Examination& e, bool on_gpu);
// Checks the bytes that ranks take by the plan against what their node has, or their GPU where each
// has one.
void check_memory(const Examination& e, const config::Config& config);

// Checks links between nodes, and their clocks.
void check_network(const Examination& e, const Expected& expected);
// Checks that every rank has the device that the configuration asks for and how fast each computes;
// then which transport tensors take along each axis, and how long a sum takes there.
void check_device_and_axes(const Examination& e, const config::Config& config);

void check_checkpoints(const Examination& e, const config::Config& config);
void check_data(const Examination& e, const config::Config& config);
void check_metrics(const Examination& e, const config::Config& config);

}  // namespace tfm::launch
