#pragma once
// Checks memory that several ranks must hold bit for bit: parameters along the data axis, also
// along the tensor axis unless they are split over it, and optimizer state that ZeRO does not
// shard. Under ZeRO, weights are sharded like that state: what a step gathers of them is made anew
// by the next.
#include "train/engine.h"

namespace tfm::train {

// Collective. Error(retryable) on every rank if a copy differs from the others by a bit; it names
// the tensors, the ranks and their hosts. `what`: begins the message, "step 500". Exchanges 8 bytes
// per tensor and rank, once.
void check_replicas(Engine& engine, const std::string& what);

}  // namespace tfm::train
