#pragma once
// Loss and accuracy of a model on a data source, without training memory.
#include "data/dataset.h"
#include "inference/loaded_model.h"
#include "inference/totals.h"

namespace tfm::inference {

// Negative log-likelihood (without label smoothing) and accuracy over one pass of `data`, whose
// batches have batch_shapes(config); the data ranks share out each batch. The same on every rank.
// All ranks of the mesh call alike.
Totals evaluate(LoadedModel& model, const config::Config& config, const data::Dataset& data);

}  // namespace tfm::inference
