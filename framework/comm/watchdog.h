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
  // No progress inside a collective for `timeout` seconds: one line on standard error that says who
  // waits in what for whom, then the job ends with exit code 75 on all ranks. Time outside
  // collectives never counts; on a device, a collective's begins when all collectives before it are
  // complete. A process of this node that is gone, the launcher, or a library that can make no
  // collectives any more ends the job at once. Off where timeout <= 0 or the mesh has one rank.
  // Collective over the mesh.
  Watchdog(const Mesh& mesh, double timeout);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void set_timeout(double seconds) { timeout_ = seconds; }
  // The rank is alive at `step`: the timeout of those that wait for it starts again.
  void heartbeat(std::int64_t step);

 private:
  void watch();
  std::string gone() const;     // a line about a process that is gone, or nothing
  std::string overdue() const;  // a line about a collective that lasts too long, or nothing

  std::shared_ptr<FlightRecorder> recorder_;
  std::atomic<double> timeout_;
  double resumed_ = 0;  // when this process last went on after having been stopped
  int parent_;
  std::vector<std::string> hosts_;  // of all ranks
  std::vector<int> pids_;           // of the other ranks of the node; 0: not watched
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tfm::comm
