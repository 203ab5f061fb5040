#pragma once
// Name of the family in the configuration -> model.
#include "config/config.h"
#include "nn/model.h"

namespace tfm::models {
std::unique_ptr<nn::Model> make_model(const config::Config& config, const comm::Mesh& mesh);
}  // namespace tfm::models
