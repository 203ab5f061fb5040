#pragma once
// The lock of a checkpoint directory.
#include <string>

namespace tfm::checkpoint {

// Held by a run so that no two runs share a checkpoint directory. dir/run.lock holds host, pid and
// boot id of the owner, the number of its Slurm job, and a kernel lock that ends with it. The lock
// of a dead owner is taken over, and that of an earlier start of the same Slurm job; that of a live
// one, or of another machine, is Error(environment).
class RunLock {
 public:
  explicit RunLock(const std::string& dir);  // creates the directory
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace tfm::checkpoint
