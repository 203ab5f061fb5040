#pragma once
// How much a checkpoint takes, before there is one.
#include "plan/step_plan.h"

namespace tfm::plan {

// Bytes of the tensors that this rank writes into a checkpoint; of all ranks together those of one
// logical checkpoint, the same on every layout. Headers and the manifest come on top: about 300
// bytes a tensor.
std::int64_t checkpoint_bytes(const StepPlan& plan);

}  // namespace tfm::plan
