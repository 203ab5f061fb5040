#pragma once
// The lock of a checkpoint directory.
#include <string>

namespace tfm::checkpoint {

// Held by a run so that no two runs share a checkpoint directory. dir/run.lock holds host, pid and
// boot id of the owner, and a kernel lock that ends with it. The lock of a dead owner is taken
// over; that of a live one, or of another machine, is Error(environment).
class RunLock {
 public:
  explicit RunLock(const std::string& dir);  // creates the directory
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  bool took_over() const { return took_over_; }

 private:
  std::string path_;
  int fd_ = -1;
  bool took_over_ = false;
};

}  // namespace tfm::checkpoint
