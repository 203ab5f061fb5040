#pragma once
// Weights to start from: a Hugging Face directory, or a checkpoint (its parameters alone: their average where it has one).
#include <string>

#include "nn/parameter.h"
#include "train/config.h"

namespace tfm {

// The shape of what is there. Error(input) where the directory holds neither.
ModelConfig model_of_directory(const std::string& path);

// Fills the flat buffer laid out by `parameters`. Returns what a checkpoint keeps of the origin (JSON, "{}" if there is nothing).
// Error(input) names the tensor that does not fit.
std::string load_initial_weights(const std::string& path, const ModelConfig& model, const ParameterSet& parameters, float* flat);

}  // namespace tfm
