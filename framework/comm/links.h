#pragma once
// Latency, bandwidth and clock offsets between ranks, measured with messages between pairs. The
// measurements are collective over the job, and every rank gets the result.
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

// Called on a rank before it waits for rank `other`.
using BeforeExchange = std::function<void(int other)>;

// Measures every pair of `ranks`, in a fraction of a second each; sorted by (from, to). Disjoint
// pairs are measured concurrently: n ranks take n - 1 rounds, or n if n is odd.
std::vector<Link> measure_links(const MpiSession& session, const std::vector<int>& ranks,
                                const BeforeExchange& before);

// For each of `ranks`, the seconds by which its clock is ahead of that of ranks[0], from the
// exchange with the shortest round trip (Mills 1991, NTP). The error is at most half that round
// trip.
std::vector<double> clock_offsets(const MpiSession& session, const std::vector<int>& ranks,
                                  const BeforeExchange& before);

std::string mpi_version();  // "Open MPI v4.1.4"

}  // namespace tfm::comm
