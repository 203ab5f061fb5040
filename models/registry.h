#pragma once
// Name of the family in the configuration -> model.
#include "nn/model.h"
#include "train/config.h"

namespace tfm {
std::unique_ptr<Model> make_model(const Config& config, const Mesh& mesh);
}  // namespace tfm
