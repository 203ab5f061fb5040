#pragma once
// The shapes of the global batches that a configuration asks for.
#include <vector>

#include "config/config.h"
#include "nn/model.h"

namespace tfm::data {

// Shapes of the global batch, the smallest first: one, or with train.global_batch_tokens one for
// each length. Error(usage) where a learned position table is too small for the targets of
// span_corruption.
std::vector<nn::BatchShape> batch_shapes(const config::Config& config);

}  // namespace tfm::data
