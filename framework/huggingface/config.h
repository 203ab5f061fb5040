#pragma once
// config.json of Hugging Face's transformers (versions 4 and 5) and the `model` section: gpt2,
// llama, bert, t5, bart, marian.
#include <optional>
#include <string>

#include "config/config.h"
#include "tokenizer/tokenizer.h"

namespace tfm::huggingface {

// The model that DIR/config.json describes. Whether the output layer is tied, and which heads there
// are, is decided by the tensors that are there. Error(input) names the file and what is missing,
// unknown or not supported.
config::ModelConfig model_of_huggingface(const std::string& dir);

// A config.json for a model; members of `original` (a config.json, or empty) that this one does not
// set are kept. Without an original, `ids` are written too, those that there are not as null:
// transformers puts ids of its own where it reads none. Error(usage) where transformers has no
// class for the combination of options.
std::string huggingface_config(const config::ModelConfig& model,
                               const std::optional<tokenizer::SpecialIds>& ids,
                               const std::string& original);

// "gpt2", "llama", "bert", "t5", "bart" or "marian": the class that computes the same as the model.
// Error(usage) where none does.
std::string huggingface_type(const config::ModelConfig& model);

}  // namespace tfm::huggingface
