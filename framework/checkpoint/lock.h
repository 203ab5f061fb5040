#pragma once
// The lock of a checkpoint directory.
#include <string>

namespace tfm::checkpoint {

// Two runs never share a checkpoint directory: dir/run.lock holds host, pid and boot id of the
// owner, and a kernel lock that ends with it. A dead owner's lock is taken over; a live one, or one
// of another machine, is an Error(environment).
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
