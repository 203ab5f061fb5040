#pragma once
// The peak FLOP/s that a run's FLOPs are compared with.
#include "launch/support/program.h"
#include "train/observer.h"

namespace tfm::launch {

// Collective. Sets the peak of all ranks together, with a note on its origin. GPUs: from the table
// in configs/devices, unknown for those that it lacks. CPUs: the rate of matrix products in the
// run's precision, measured on the threads of all ranks at once within some hundredths of a second.
void set_peak(const Launch& launch, const config::Config& config, train::Machine& machine);

// The part of its measured rate that each of a node's `ranks` of `threads` threads has while all
// compute: of cores that they take turns on each measures more than its share.
double share_of_cores(int cores, int threads, int ranks);

}  // namespace tfm::launch
