#pragma once
// Requests to checkpoint or stop: signals and a file.
//   SIGUSR1            write a checkpoint and continue
//   SIGUSR2, SIGTERM   write a checkpoint and stop
//   SIGINT (Ctrl-C)    the same where checkpoints are written; a second one ends the process
//   STOP               the same: a file of this name in the checkpoint directory
#include <atomic>
#include <csignal>
#include <string>
#include <thread>

namespace tfm::train {

// Ordered: all ranks obey the largest request of any rank.
enum class Request : int { none = 0, checkpoint = 1, stop = 2 };

// Signals reach ranks at different times: ranks must agree on the maximum of poll() before acting
// on it.
//
// The signals stay blocked and are fetched by poll(); no handler ever runs. oneDNN's sgemm points
// the stack register into its workspace on the heap, where the frame of a handler would destroy
// what lies below.
class StopRequests {
 public:
  StopRequests();   // construct before any thread starts: threads inherit the mask
  ~StopRequests();  // drops pending signals
  StopRequests(const StopRequests&) = delete;
  StopRequests& operator=(const StopRequests&) = delete;

  // From now on the first SIGINT is a request. Before, as where it is never called, it ends the
  // process; one that is ignored stays so.
  void obey_interrupts() { obeys_interrupts_ = true; }
  // The most urgent request. A checkpoint is requested once; a stop stays. `dir`: where STOP may
  // lie; empty: not looked for, which is enough for all ranks but one.
  Request poll(const std::string& dir = {});
  static void obeyed(const std::string& dir);  // rank 0, after the last checkpoint: removes STOP

 private:
  void watch_interrupts(const std::stop_token& stop);
  sigset_t before_;
  bool stop_ = false;
  std::atomic<bool> obeys_interrupts_ = false, interrupted_ = false;
  std::jthread interrupts_;
};

}  // namespace tfm::train
