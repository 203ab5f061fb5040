#pragma once
// Linear attention (Katharopoulos et al. 2020) of whole sequences: a rank has all positions.
#include "core/rows.h"
#include "graph/recorder.h"
#include "kernels/linear_attention.h"

namespace tfm::ops {

// (N, H D) from rows of queries, keys and values (N, 3 H D); see kernels/linear_attention.h.
// Segments, (N) int32 or absent, do not see each other. With the leaf `state` (B, H D (D + 1)) of
// the accumulation type, it continues what that holds; causal, forward only.
graph::Value linear_attention(graph::Recorder& r, graph::Value qkv,
                              const kernels::LinearSizes& sizes, const Rows& rows,
                              graph::Value segments, graph::Value state = {});

}  // namespace tfm::ops
