#pragma once
// Bounds the waits of a rank before there is a Watchdog.
#include <memory>

namespace tfm::comm {

inline constexpr double kStartTimeout = 300;  // seconds

// While an instance lives, the rank waits for the others in `what`. If that takes longer than
// `timeout` seconds plus ten times what this process had run before, one rank of each host says on
// standard error which ranks of this host are stopped, do not wait or have no process, and all end
// with exit code 75, upon which launchers end the job.
class StartWait {
 public:
  explicit StartWait(const char* what, double timeout = kStartTimeout);
  ~StartWait();
  StartWait(const StartWait&) = delete;
  StartWait& operator=(const StartWait&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;  // null: no launcher, nothing is watched
};

}  // namespace tfm::comm
