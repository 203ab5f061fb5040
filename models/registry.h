#pragma once
// Makes the model of the family that the configuration names.
#include "config/config.h"
#include "nn/model.h"

namespace tfm::models {
std::unique_ptr<nn::Model> make_model(const config::Config& config, const comm::Mesh& mesh);
}  // namespace tfm::models
