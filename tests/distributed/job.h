#pragma once
// The job that the distributed tests run in; made by main.
#include "comm/mpi.h"

namespace tfm::test {

const MpiSession& job();

// All layouts of the job's ranks: (1, n), (2, n/2), ..., (n, 1).
std::vector<Layout> layouts();

}  // namespace tfm::test
