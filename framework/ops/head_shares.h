#pragma once
// Ranks that share sequences exchange positions for heads around what passes a state from position
// to position, so that its numbers are those of one rank (Jacobs et al. 2023, "DeepSpeed Ulysses").
#include "graph/recorder.h"
#include "kernels/head_shares.h"

namespace tfm::ops {

// The rows of whole sequences.
Rows whole(const Rows& rows);
// x (N, C), of this rank's positions, becomes (B T, C / R) for R ranks: all positions, in order, of
// this rank's share of each section.
graph::Value share_heads(graph::Recorder& r, graph::Value x, const kernels::HeadSections& sections,
                         const Rows& rows);
// The reverse: of (B T, C / R) in order, (N, C).
graph::Value share_positions(graph::Recorder& r, graph::Value x,
                             const kernels::HeadSections& sections, const Rows& rows);
// A parameter (C, K) or (C) of all heads becomes that of this rank's share, (C / R, K) or (C / R).
graph::Value share_of(graph::Recorder& r, graph::Value parameter,
                      const kernels::HeadSections& sections, const SequenceShare& share);

}  // namespace tfm::ops
