#pragma once
// Turns a recording into a Program, once.
#include <limits>

#include "graph/program.h"

namespace tfm::graph {

struct PlanOptions {
  bool training = true;  // false: forward only, nothing is kept for backward
  Recompute recompute = Recompute::none;
  int recompute_scopes = std::numeric_limits<int>::max();  // of the first so many; others keep all
  std::vector<Value> outputs;                              // stay alive to the end of the run
  std::vector<Value>
      seeds;  // their gradients are written by the caller before the run (gradient tests)
  std::vector<BucketUse> buckets;  // reduced from the step on that makes their last gradient final
  Sharded sharded;
  // Bytes of the flat gradients, which lie right in front of the arena; 0: somewhere else. Steps in
  // front of the one that first writes a gradient then use its memory, too: of programs that no
  // other micro-batch's gradients are added up by.
  std::int64_t gradients_in_front = 0;
  bool device = false;  // of a GPU: kernels get scratch memory
  // A pass's collective is waited for right before the first step that needs its result, otherwise
  // at once; gradients of parameters, and what the pass computes beside it, are made meanwhile.
  // Sharded buckets are gathered one visit of a layer ahead and reduced during the next one; whole
  // ones are waited for at the end, always.
  bool overlap = false;
  // Micro-batches that are under way at once, each with a slot for what its backward section reads
  // of its forward section; 0: programs run as a whole.
  std::int64_t slots = 0;
  std::span<const StepPair> fusions = {};  // live as long as the program
  // For searches: finish() gives buffers their places and verifies; until then arena_bytes() is a
  // lower bound.
  bool draft = false;
};

Program plan(std::shared_ptr<const Recorder> recording, const PlanOptions& options);
void finish(Program& program);  // that may be a draft

// Independent of the planner: throws where two buffers that live at the same time overlap, a step
// reads what no step wrote, a gradient is accumulated before it is assigned, a step touches what a
// collective under way uses, or a bucket is reduced before its gradients are final.
void verify(const Program& program);

}  // namespace tfm::graph
