#include "data/batch_shapes.h"

#include "data/objective.h"

namespace tfm::data {

std::vector<nn::BatchShape> batch_shapes(const config::Config& config) {
  return objective_of(config.data.train).shapes(config);
}

}  // namespace tfm::data
