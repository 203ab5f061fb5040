#pragma once
// Loss and accuracy of a model on a data source, without training memory.
#include "data/dataset.h"
#include "inference/loaded_model.h"
#include "inference/totals.h"

namespace tfm::inference {

// Collective over the mesh: negative log-likelihood (without label smoothing) and accuracy over one
// pass of `data`, whose batches have batch_shapes(config). The data ranks share each batch. The
// result is the same on every rank.
Totals evaluate(LoadedModel& model, const config::Config& config, const data::Dataset& data);

}  // namespace tfm::inference
