#pragma once
// Watches what a rank waits for before there is a Watchdog.
#include <memory>

namespace tfm::comm {

inline constexpr double kStartTimeout = 300;  // seconds

// While one lives, the rank waits for the others in `what`. Where that takes longer than `timeout`
// seconds and ten times what this process has run so far, a line on standard error says so, and the
// process ends with exit code 75, upon which launchers end the job.
class StartWait {
 public:
  explicit StartWait(const char* what, double timeout = kStartTimeout);
  ~StartWait();
  StartWait(const StartWait&) = delete;
  StartWait& operator=(const StartWait&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;  // null: alone
};

}  // namespace tfm::comm
