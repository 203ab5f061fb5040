#pragma once
// How a job ends that fails on some or all of its ranks.
#include <string>
#include <vector>

namespace tfm::comm {

struct RankFailure {
  int rank = 0, code = 1;
  std::string host, message;
};

// One line or more for each different message, with the hosts and ranks that report it; without
// them where all `ranks` of the job report the same.
std::string failure_text(const std::vector<RankFailure>& failures, int ranks);

// Called by a rank that cannot continue, from the main thread, with no communicator in use. Prints
// on standard error and ends all ranks of the job with `code`. Ranks that fail at about the same
// time are collected on rank 0, which prints what they share once. Waits for others a few seconds
// at most, so that no rank waits for one that has died.
[[noreturn]] void fail_job(int code, const std::string& message);

}  // namespace tfm::comm
