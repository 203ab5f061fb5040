#pragma once
// A training run from start or resume to its last step: data, steps, evaluation, checkpoints,
// metrics, requests from outside.
#include "train/engine.h"
#include "train/stop_requests.h"

namespace tfm::train {

struct TrainOutcome {
  std::int64_t step = 0;  // last step done
  bool stopped = false;   // on request, before the last step
  double loss = 0;
};

// Throws Error(usage) for a configuration whose model cannot be trained with its data.
void check_trainable(const config::Config& config);

// Collective over the mesh. `requests`: from before any thread was started.
// Prints progress on rank 0. Throws Error with the contract's exit code.
TrainOutcome train(const config::Config& config, const comm::Mesh& mesh,
                   const device::Device& device, StopRequests& requests);

}  // namespace tfm::train
