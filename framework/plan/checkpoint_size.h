#pragma once
// The size of a checkpoint, before one is written.
#include "plan/step_plan.h"

namespace tfm::plan {

// Bytes of the tensors that this rank writes into a checkpoint. The sum over all ranks is one
// logical checkpoint and the same on every layout. Headers and the manifest add about 300 bytes per
// tensor.
std::int64_t checkpoint_bytes(const StepPlan& plan);

}  // namespace tfm::plan
