#pragma once
// Turns a recording into a Program, once.
#include "graph/program.h"

namespace tfm::graph {

struct PlanOptions {
  bool training = true;  // false: forward only, nothing is kept for backward
  Recompute recompute = Recompute::none;
  std::vector<Value> outputs;  // stay alive to the end of the run
  std::vector<Value>
      seeds;  // their gradients are written by the caller before the run (gradient tests)
  std::vector<BucketUse> buckets;  // reduced after the step that makes their last gradient final
  bool device = false;             // of a GPU: kernels get scratch memory
  std::span<const StepPair> fusions = {}, overlaps = {};  // steps that are run at once, which live
                                                          // as long as the program
};

Program plan(std::shared_ptr<const Recorder> recording, const PlanOptions& options);

// Independent of the planner: throws where two buffers that live at the same time overlap, a step
// reads what no step wrote, a gradient is accumulated before it is assigned, or a bucket is reduced
// before its gradients are final.
void verify(const Program& program);

}  // namespace tfm::graph
