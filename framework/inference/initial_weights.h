#pragma once
// Weights to start from: a Hugging Face directory, or a checkpoint (its parameters alone: their
// average where it has one).
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "config/config.h"
#include "nn/parameter.h"

namespace tfm::inference {

// Reads headers, not weights. Error(input) where the directory holds neither.
config::InitialConfig config_of_directory(const std::string& path);

// Reads headers alone: Error(input) where what is there does not hold every parameter, in its
// shape. Returns the names of what it holds and `parameters` have not.
std::vector<std::string> check_initial_weights(const std::string& path,
                                               const config::ModelConfig& model,
                                               const nn::ParameterSet& parameters);

struct InitialWeights {
  nn::WeightSource read;
  std::string origin;  // what a checkpoint keeps of it (JSON, "{}" if there is nothing)
};
// Collective: reads headers. Rank 0 verifies the checksums of a checkpoint before any rank reads a
// weight; Error(input) on every rank names the file that is damaged, or the tensor that does not
// fit.
InitialWeights open_initial_weights(const std::string& path, const config::ModelConfig& model,
                                    const nn::ParameterSet& parameters, comm::Communicator& world);

}  // namespace tfm::inference
