#pragma once
// The job that the distributed tests run in; made by main.
#include <string>

#include "comm/mpi.h"
#include "comm/watchdog.h"

namespace tfm::test {

const comm::MpiSession& job();

// Of a layout, made once: a job keeps the memory of its groups until it ends.
const comm::Mesh& mesh_of(comm::Layout layout);

// All layouts of the job's ranks: (1, n), (2, n/2), ..., (n, 1).
std::vector<comm::Layout> layouts();

// Two sums of 1000 floats on the data axis, between which `rank` does what `how` says: hang, die or
// fail. Only the watchdog ends it, which waits for a second after the first sum.
void misbehave(const comm::Mesh& mesh, comm::Watchdog& watchdog, const std::string& how, int rank);

}  // namespace tfm::test
