#pragma once
// Proof on a user's own configuration that its sharded run equals the single-rank one.
#include <string>
#include <vector>

#include "train/engine.h"

namespace tfm::train {

struct Finding {
  std::string check;  // "gradient", "parameters after 5 steps", ...
  std::string worst;  // the tensor that differs most
  double error = 0;   // relative: norm of the difference over the norm of the reference
  double bound = 0;   // 0: bit-equal is asked for
  bool ok() const { return error <= bound; }
};

// Sizes that keep every option of `config` but run in a moment: at most 2 layers, heads of 8,
// sequences of about 16 tokens.
config::Config shrink(const config::Config& config);

// Collective over the mesh; the same findings on every rank. Runs in float64 on synthetic tokens;
// save and load in the configuration's precision. `device`: of the kind that the configuration
// names.
std::vector<Finding> verify_layout(const config::Config& config, const comm::Mesh& mesh,
                                   const device::Device& device);

}  // namespace tfm::train
