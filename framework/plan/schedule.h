#pragma once
// The order in which a pipeline rank runs its micro-batches: one forward, one backward (1F1B:
// Harlap et al., PipeDream, 2018), with a flush at the end of each step as in Narayanan et al.,
// 2021. A rank runs forward passes until its first gradient can arrive, and then alternates. With
// several chunks of blocks per rank (the interleaved schedule of Narayanan et al.), it takes as
// many micro-batches as there are ranks through one chunk and then through the next.
#include <vector>

#include "graph/program.h"
#include "nn/placement.h"

namespace tfm::plan {

struct Pass {
  graph::Section section;
  std::int64_t micro_batch = 0;
  bool last = false;  // completes the gradients of its chunk
  // For a rank that has the head: whether the pass completes its micro-batch's losses.
  bool makes_losses(int chunks) const {
    return section.of == graph::Section::Of::program ||
           section == graph::Section{graph::Section::Of::backward, chunks - 1};
  }
};

// The passes of one rank in a step; without a pipeline, the micro-batches one after another.
std::vector<Pass> schedule(const comm::Layout& layout, int rank, std::int64_t micro_batches,
                           int chunks = 1);

// The most micro-batches in flight, between their first and last pass, at any time; 0 without a
// pipeline. Micro-batches begin, and end, in ascending order.
std::int64_t slots(const std::vector<Pass>& schedule);

}  // namespace tfm::plan
