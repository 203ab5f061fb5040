#pragma once
// The shapes of a configuration's global batches.
#include <vector>

#include "config/config.h"
#include "nn/model.h"

namespace tfm::data {

// The shapes of the global batch, the smallest first: one, or with train.global_batch_tokens one
// per length. Error(usage) if a learned position table is too small for the targets of
// span_corruption.
std::vector<nn::BatchShape> batch_shapes(const config::Config& config);
// The first of them for a forward pass alone: each rank has the sequences of about 1,024 tokens,
// but no more than a batch gives it.
nn::BatchShape forward_shape(const config::Config& config, const comm::Layout& layout);

}  // namespace tfm::data
