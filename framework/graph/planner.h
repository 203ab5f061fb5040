#pragma once
// Compiles a recording into a Program.
#include <limits>

#include "graph/program.h"

namespace tfm::graph {

struct PlanOptions {
  bool training = true;  // false: forward only, nothing is kept for backward
  Recompute recompute = Recompute::none;
  // `recompute` applies to the first so many scopes; the others keep all values.
  int recompute_scopes = std::numeric_limits<int>::max();
  std::vector<Value> outputs;  // live to the end of the run
  std::vector<Value> seeds;    // gradients that the caller writes before the run (gradient tests)
  std::vector<BucketUse> buckets;  // each is reduced once its last gradient is final
  Sharded sharded;
  // Bytes of the flat gradients if they lie right in front of the arena, else 0. Steps before the
  // first write of a gradient can then use its memory, so a step must have a single micro-batch.
  std::int64_t gradients_in_front = 0;
  bool device = false;  // runs on a GPU: kernels get scratch memory
  // Overlap collectives with computation. The only collective of a pass is waited for right before
  // the first step that needs its result; gradients of parameters and Op::beside() are computed
  // meanwhile. Sharded parameters are gathered one visit of a layer ahead, updated ones from the
  // start; sharded gradients are reduced during the next visit. Without overlap, collectives are
  // waited for at once. Reductions of whole buckets are always waited for at the program's end.
  bool overlap = false;
  // Micro-batches in flight, each with a slot for buffers that live in several sections; 0: the
  // program runs as a whole.
  std::int64_t slots = 0;
  std::span<const Fusion> fusions = {};  // must outlive the program
  // For searches: buffers are not placed and nothing is verified until finish(). Until then,
  // Program::arena_bytes() is a lower bound.
  bool draft = false;
};

Program plan(std::shared_ptr<const Recorder> recording, const PlanOptions& options);
// Places the buffers of a draft and verifies it; does nothing if the program is no draft.
void finish(Program& program);

// Checks a program independently of the planner. An internal error if two buffers that are live at
// the same time overlap, a step reads what no step wrote, a gradient is accumulated before it is
// assigned, a step touches what a pending collective uses, or a bucket is reduced before its
// gradients are final.
void verify(const Program& program);

}  // namespace tfm::graph
