#pragma once
// Ends a job that fails on some or all of its ranks.
#include <string>
#include <vector>

namespace tfm::comm {

struct RankFailure {
  int rank = 0, code = 1;
  std::string host, message;
};

// The distinct messages, each prefixed by the hosts and ranks that report it; without the prefix if
// all `ranks` ranks of the job report the same message.
std::string failure_text(const std::vector<RankFailure>& failures, int ranks);

// Called on the main thread by a rank that cannot continue, with no communicator in use. Prints
// `message` on standard error and ends all ranks of the job with exit code `code`. Rank 0 collects
// the failures of ranks that fail at about the same time and prints each message once. Waits for
// other ranks for a few seconds only, 20 s if MPI has yet to be started, so no rank waits for a
// dead one.
[[noreturn]] void fail_job(int code, const std::string& message);

}  // namespace tfm::comm
