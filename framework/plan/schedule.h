#pragma once
// The order in which a rank of a pipeline runs its micro-batches: one forward, one backward (1F1B:
// Harlap et al., PipeDream, 2018, with a flush at the end of each step as in Narayanan et al.,
// 2021). It works on the first forward passes until its first gradient can come, and then in turns.
// Where each rank has several chunks of blocks (the interleaved schedule of Narayanan et al.), it
// takes as many micro-batches through one chunk as there are ranks, and then through the next one.
#include <vector>

#include "graph/program.h"
#include "nn/placement.h"

namespace tfm::plan {

struct Pass {
  graph::Section section;
  std::int64_t micro_batch = 0;
  bool last = false;                     // the one that makes the gradients of its chunk whole
  bool makes_losses(int chunks) const {  // of a rank that has the head, in its last chunk
    return section.of == graph::Section::Of::program ||
           section == graph::Section{graph::Section::Of::backward, chunks - 1};
  }
};

// Of one rank: without a pipeline the micro-batches one after the other.
std::vector<Pass> schedule(const comm::Layout& layout, int rank, std::int64_t micro_batches,
                           int chunks = 1);

// Micro-batches between their first and their last pass at once; 0 without a pipeline. Each begins
// and ends in the order of its number.
std::int64_t slots(const std::vector<Pass>& schedule);

}  // namespace tfm::plan
