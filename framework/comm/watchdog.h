#pragma once
// A thread that ends the job when this rank waits too long inside a collective, or when another
// process of the job is gone.
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/flight_recorder.h"
#include "comm/mesh.h"

namespace tfm::comm {

class Watchdog {
 public:
  // Collective over the mesh. Off if timeout <= 0 or the mesh has one rank.
  //
  // Ends the job with exit code 75 on all ranks when this rank makes no progress inside a
  // collective for `timeout` seconds, after a line on standard error that says who waits in what
  // for whom. Time outside collectives never counts; on a device, a collective's time begins when
  // all collectives before it are complete. Ends the job at once if the process of another rank of
  // this node or the parent of this one, the launcher, is gone, or if the communication library
  // reports that it can complete no collective.
  Watchdog(const Mesh& mesh, double timeout);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void set_timeout(double seconds) { timeout_ = seconds; }
  // Reports that this rank is alive at `step`, which restarts the timeout of ranks that wait for
  // it.
  void heartbeat(std::int64_t step);

 private:
  void watch();
  std::string gone() const;     // a line about a process that is gone, or nothing
  std::string overdue() const;  // a line about a collective that lasts too long, or nothing
  // The ranks that `rank` waits for in `event`: a message's peer; otherwise the members of its
  // group that have not entered the collective or are on other nodes.
  std::vector<int> missing(int rank, const Event& event) const;
  // The ranks at the end of the chains of waits that lead from `ranks`: stopped, or in no
  // collective. Where all chains leave this node, the ranks of other nodes that they lead to.
  std::vector<int> held_up_by(std::vector<int> ranks) const;
  std::string doing(int rank, double now) const;

  std::shared_ptr<FlightRecorder> recorder_;
  std::atomic<double> timeout_;
  double resumed_ = 0;  // when this process last resumed after being stopped
  int parent_;
  std::vector<std::string> hosts_;  // of all ranks
  std::vector<int> pids_;           // of the other ranks of the node; 0: not watched
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tfm::comm
