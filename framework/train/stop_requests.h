#pragma once
// Requests to checkpoint or stop: signals and a file.
//   SIGUSR1             write a checkpoint and continue
//   SIGUSR2, SIGTERM    write a checkpoint and stop; so does a file STOP in the checkpoint
//   directory
#include <csignal>
#include <string>

namespace tfm::train {

enum class Request : int {
  none = 0,
  checkpoint = 1,
  stop = 2
};  // ordered: the largest of all ranks is obeyed by all

// Signals reach ranks at different times: agree on the maximum of poll() over the ranks before
// acting on it.
//
// The signals stay blocked and are fetched by poll(); no handler ever runs. oneDNN's sgemm points
// the stack register into its workspace on the heap, where the frame of a handler would destroy
// what lies below.
class StopRequests {
 public:
  StopRequests();   // make it before any thread is started: they inherit what is blocked
  ~StopRequests();  // drops what is pending
  StopRequests(const StopRequests&) = delete;
  StopRequests& operator=(const StopRequests&) = delete;

  // The most urgent request. A checkpoint is asked for once; a stop stays. `dir`: where STOP may
  // lie; empty: not looked for, which is enough for all ranks but one.
  Request poll(const std::string& dir = {});
  static void obeyed(const std::string& dir);  // rank 0, after the last checkpoint: removes STOP

 private:
  sigset_t before_;
  bool stop_ = false;
};

// A rank started by an MPI launcher is killed with it, also where the launcher gets no chance to do
// so. Without a launcher: does nothing.
void die_with_parent();

}  // namespace tfm::train
