#pragma once
// A short model that stands for a long one whose layers repeat: what is recorded of it says what
// each layer of the long one costs.
#include "config/config.h"

namespace tfm::models {

struct Abridged {
  config::ModelConfig model;
  // By layer of the long model, of all stacks: the layer of `model` with an equal configuration
  // between equal neighbours.
  std::vector<std::size_t> like;
};
Abridged abridged(const config::ModelConfig& model);

// Floating-point operations of each layer of all stacks in a forward pass over one sequence of
// train.seq_len tokens, as recorded; the last one's include the output layer. Of scores that a mask
// hides as many count, too, as it leaves: attention reaches about half the rate of products.
std::vector<double> layer_flops(const config::Config& config);

}  // namespace tfm::models
