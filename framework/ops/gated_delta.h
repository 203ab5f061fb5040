#pragma once
// Ops of the gated delta rule (Yang et al. 2025) and of state spaces (Dao and Gu 2024), of whole
// sequences: a rank has all positions.
#include "core/rows.h"
#include "graph/recorder.h"
#include "kernels/gate.h"
#include "kernels/gated_delta.h"

namespace tfm::ops {

// y (N, C) = silu of a causal convolution of each column of x (N, C) with its K weights (C, K) and
// its bias (C), which may be absent (kernels/short_convolution.h). Segments, (N) int32 or absent,
// do not see each other. With the leaf `state` (B, (K - 1) C), x continues what it holds; forward
// only.
graph::Value short_convolution(graph::Recorder& r, graph::Value x, graph::Value weight,
                               graph::Value bias, const Rows& rows, graph::Value segments,
                               graph::Value state = {});

// (N, 2 H) of the accumulation type, from x (N, 2 H) or (N, H) and vectors (H); see
// kernels::DeltaGatesArgs.
graph::Value delta_gates(graph::Recorder& r, graph::Value x, graph::Value log_rate,
                         graph::Value bias);

// (N, H Dv) from qkv (N, 2 KH Dk + H Dv), gates and `skip` (H), which may be absent; a state begins
// anew with each segment. With the leaf `state` (B, H Dk Dv) of the accumulation type, it continues
// what that holds; forward only.
graph::Value gated_delta(graph::Recorder& r, graph::Value qkv, graph::Value gates,
                         graph::Value skip, const kernels::DeltaSizes& sizes, const Rows& rows,
                         graph::Value segments, graph::Value state = {});

// y = x f(z), all of one shape.
graph::Value gate(graph::Recorder& r, graph::Value x, graph::Value z, kernels::Gate kind);

}  // namespace tfm::ops
