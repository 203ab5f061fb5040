#pragma once
// A training run from start or resume to its last step. What happens besides the steps themselves
// is done by observers (train/observers.h).
#include "comm/mesh.h"
#include "config/config.h"
#include "device/device.h"
#include "train/observer.h"
#include "train/stop_requests.h"

namespace tfm::train {

struct TrainOutcome {
  std::int64_t step = 0;  // last step done
  bool stopped = false;   // on request, before the last step
  double loss = 0;
};

// Checks a run's inputs without ranks and without reading all data: that the model can be trained
// with its data, and that data, tokenizer and checkpoints can be opened and fit. Error(usage) or
// Error(input) lists every problem at the place where its key was written.
void check_inputs(const config::Config& config);

// Collective over the mesh. `requests`: constructed before any thread was started. `machine`: for
// reports. Prints progress on rank 0. Throws Error with the contract's exit code.
TrainOutcome train(const config::Config& config, const comm::Mesh& mesh,
                   const device::Device& device, StopRequests& requests,
                   const Machine& machine = {});

// Seconds that ranks may wait for each other in a step: parallel.timeout; without it ten times the
// longest step so far, at least 30 s and at most 300 s, and 300 s before there is one (0).
double step_timeout(const config::ParallelConfig& parallel, double longest_step);

}  // namespace tfm::train
