#pragma once
// Verifies on a user's own configuration that its sharded run equals the single-rank one.
#include <functional>
#include <string>
#include <vector>

#include "train/engine.h"

namespace tfm::train {

struct Finding {
  std::string check;            // "gradient", "parameters after 5 steps", ...
  std::string worst;            // the tensor that differs most
  double error = 0;             // relative: norm of the difference over the norm of the reference
  double bound = 0;             // 0: must be bit-equal
  std::vector<int> ranks = {};  // on which `worst` exceeds the bound, where that is known
  bool ok() const { return error <= bound; }
};

// What a run of some steps leaves behind: this rank's slices, in the order of its parameters'
// slices().
struct Trace {
  std::vector<std::vector<double>> initial, gradients, parameters;
  std::vector<double> losses, norms;
  std::int64_t planned = 0, taken = 0;  // bytes of memory
  bool fixed_order = true;              // sums over ranks have a fixed order
};

// The runs that are compared: a single rank, the layout, and the layout with recomputation toggled
// or without ZeRO.
enum class Experiment : std::uint8_t { single, layout, other_recompute, no_zero };

// Called on every rank between a run and the comparisons; can inject errors to prove that they are
// found.
struct Interference {
  std::function<void(Experiment, Trace&)> traced = [](Experiment, Trace&) {};
  std::function<void(Engine&)> restored = [](Engine&) {};  // from the checkpoint
};

// Shrinks `config`, with every option kept, to run in a moment: at most 2 layers, or as many as a
// pipeline needs, heads of 8, sequences of about 16 tokens.
config::Config shrink(const config::Config& config);

// Collective over the mesh; the same findings on every rank. Trains in float64 on synthetic tokens;
// saves and loads in the configuration's precision. `device`: of the kind that the configuration
// names.
std::vector<Finding> verify_layout(const config::Config& config, const comm::Mesh& mesh,
                                   const device::Device& device,
                                   const Interference& interference = {});

}  // namespace tfm::train
