#pragma once
// Weights to start from: a Hugging Face directory, or a checkpoint (its parameters alone: their
// average where it has one).
#include <string>

#include "config/config.h"
#include "nn/parameter.h"

namespace tfm::inference {

// The shape of what is there. Error(input) where the directory holds neither.
config::ModelConfig model_of_directory(const std::string& path);

// Fills the flat buffer laid out by `parameters`. Returns what a checkpoint keeps of the origin
// (JSON, "{}" if there is nothing). Error(input) names the tensor that does not fit.
std::string load_initial_weights(const std::string& path, const config::ModelConfig& model,
                                 const nn::ParameterSet& parameters, float* flat);

}  // namespace tfm::inference
