#pragma once
// What a run's FLOPs are compared with.
#include "launch/support/program.h"
#include "train/observer.h"

namespace tfm::launch {

// Sets the peak of all ranks together, with a note that says where it comes from. GPUs: of the
// table in configs/devices, unknown for those that it lacks. CPUs: the rate of matrix
// products in the run's precision, measured now on the threads of all ranks at once, in some
// hundredths of a second. Collective.
void set_peak(const Launch& launch, const config::Config& config, train::Machine& machine);

}  // namespace tfm::launch
