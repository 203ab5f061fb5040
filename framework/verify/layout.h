#pragma once
// Verifies on a user's own configuration that its sharded run equals the single-rank one.
#include "train/engine.h"
#include "verify/finding.h"

namespace tfm::verify {

// Shrinks `config`, with every option kept, to run in a moment: at most 2 layers, or as many as a
// pipeline needs, heads of 8, sequences of about 16 tokens.
config::Config shrink(const config::Config& config);

// The runs that are compared: a single rank, the layout, and the layout with recomputation toggled
// and without ZeRO.
struct LayoutTraces {
  Trace single, layout, other_recompute, no_zero;
};
// A run whose steps have the same bits: without recomputation where there is some, else with all.
config::Config with_other_recompute(config::Config config);
// Collective over the mesh: trains in float64 on synthetic tokens. `device`: of the kind that the
// configuration names.
LayoutTraces trace_layout(const config::Config& config, const comm::Mesh& mesh,
                          const device::Device& device);
// Collective over the mesh; the same findings on every rank.
std::vector<Finding> compare(const config::Config& config, const comm::Mesh& mesh,
                             const LayoutTraces& traces);
// Both, and save_and_load().
std::vector<Finding> verify_layout(const config::Config& config, const comm::Mesh& mesh,
                                   const device::Device& device);

}  // namespace tfm::verify
