#pragma once
// Weights as an optimizer updates them.
#include "train/engine.h"

namespace tfm::test {

// Those in fp32 that the rank updates, by part.
inline std::vector<std::vector<float>> weights_of(train::Engine& e) {
  std::vector<std::vector<float>> all(e.model().parameters().slices().size());
  for (const optim::PartRange& r : e.optimizer().shards().parts) {
    auto& part = all[static_cast<std::size_t>(r.part)];
    const std::size_t before = part.size();
    part.resize(before + static_cast<std::size_t>(r.count()));
    e.optimizer().get_weights(e.device().stream(), e.flat(), r, 0, r.count(), part.data() + before);
  }
  return all;
}

// The same where the rank updates all of its parameters, laid out as these are.
inline std::vector<float> flat_weights_of(train::Engine& e) {
  const nn::ParameterSet& parameters = e.model().parameters();
  std::vector<float> all(static_cast<std::size_t>(parameters.flat_elements()));
  const auto parts = weights_of(e);
  for (std::size_t i = 0; i < parts.size(); ++i)
    std::ranges::copy(parts[i], all.begin() + parameters.slices()[i].offset);
  return all;
}

}  // namespace tfm::test
