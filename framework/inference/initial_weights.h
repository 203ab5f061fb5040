#pragma once
// Weights to start from: of a Hugging Face directory, or of a checkpoint (its parameters alone;
// their average if it has one).
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "nn/parameter.h"

namespace tfm::inference {

// The model and tokenizer of a directory. Reads headers, not weights. Error(input) if the directory
// is neither.
config::InitialConfig config_of_directory(const std::string& path);

// Checks headers alone. Error(input) unless every parameter is there in its shape, but for those of
// heads that learn labels, which may be new. Returns the names of tensors that `parameters` do not
// use.
std::vector<std::string> check_initial_weights(const std::string& path,
                                               const config::ModelConfig& model,
                                               const nn::ParameterSet& parameters);

struct InitialWeights {
  nn::WeightSource read;
  std::string provenance;          // what checkpoints record about it (JSON; "{}": nothing)
  std::vector<std::string> added;  // parts of heads that have their initial values
};
// Opens what verified_path() found. Reads the headers; of a Hugging Face directory also the tensors
// that are tied or that the model does not use. Error(input) names a tensor that does not fit, or
// that is tied but no copy. `seed`: of the initial values of heads that are not there;
// without one that is an error.
InitialWeights open_initial_weights(const std::string& path, const config::ModelConfig& model,
                                    const nn::ParameterSet& parameters,
                                    std::optional<std::uint64_t> seed = {});

}  // namespace tfm::inference
