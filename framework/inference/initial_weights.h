#pragma once
// Weights to start from: a Hugging Face directory, or a checkpoint (its parameters alone: their
// average where it has one).
#include <string>

#include "comm/communicator.h"
#include "config/config.h"
#include "nn/parameter.h"

namespace tfm::inference {

// The shape of what is there; reads headers, not weights. Error(input) where the directory holds
// neither.
config::ModelConfig model_of_directory(const std::string& path);

// Collective: fills the flat buffer laid out by `parameters`. Returns what a checkpoint keeps of
// the origin (JSON, "{}" if there is nothing). Rank 0 verifies the checksums of a checkpoint before
// any rank reads a weight; Error(input) on every rank names the file that is damaged, or the tensor
// that does not fit.
std::string load_initial_weights(const std::string& path, const config::ModelConfig& model,
                                 const nn::ParameterSet& parameters, float* flat,
                                 comm::Communicator& world);

}  // namespace tfm::inference
