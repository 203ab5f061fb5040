#pragma once
// Memory that several ranks hold bit for bit: parameters over the data axis, those that are not
// split over the tensor axis, too, and the optimizer state that ZeRO does not share out. Under ZeRO
// weights are shares, as that state is: what a step gathers of them is made anew by the next one.
#include "train/engine.h"

namespace tfm::train {

// Collective. Error(retryable), on every rank, where a copy differs from the others by a bit: names
// the tensors, the ranks and their hosts. `what`: begins the message, "step 500". Exchanges 8 bytes
// a tensor and rank, once.
void check_replicas(Engine& engine, const std::string& what);

}  // namespace tfm::train
