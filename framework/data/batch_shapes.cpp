#include "data/batch_shapes.h"

#include <algorithm>

#include "data/objective.h"

namespace tfm::data {

std::vector<nn::BatchShape> batch_shapes(const config::Config& config) {
  return objective_of(config.data.train).shapes(config);
}

nn::BatchShape forward_shape(const config::Config& config, const comm::Layout& layout) {
  constexpr std::int64_t kTokens = 1024;
  nn::BatchShape shape = batch_shapes(config).front();
  shape.sequences = std::clamp<std::int64_t>(
      kTokens / shape.length, 1, ceil_div(shape.sequences, layout.size(nn::kBatchAxes)));
  return shape;
}

}  // namespace tfm::data
