#pragma once
// What lies between the nodes of a job, measured with messages between pairs of ranks. All calls
// are collective over the job, and every rank gets the result.
#include <functional>
#include <string>
#include <vector>

#include "comm/mpi.h"

namespace tfm::comm {

struct Link {
  int from = 0, to = 0;  // ranks
  double latency = 0;    // seconds: half the shortest round trip
  double bandwidth = 0;  // bytes/s, of the slower direction
};

// Told on a rank, before it waits for another.
using BeforeExchange = std::function<void(int other)>;

// Each pair of `ranks`, a fraction of a second each. Disjoint pairs are measured at a time, so that
// n ranks take n - 1 rounds.
std::vector<Link> measure_links(const MpiSession& session, const std::vector<int>& ranks,
                                const BeforeExchange& before);

// Seconds by which the clock of each of `ranks` is ahead of the first one's, of the exchange with
// the shortest round trip (Mills 1991, NTP); the error is at most half of it.
std::vector<double> clock_offsets(const MpiSession& session, const std::vector<int>& ranks,
                                  const BeforeExchange& before);

std::string mpi_version();  // "Open MPI v4.1.4"

}  // namespace tfm::comm
