#pragma once
// config.json of Hugging Face's transformers and the `model` section.
#include <optional>
#include <string>

#include "huggingface/architecture.h"
#include "tokenizer/tokenizer.h"

namespace tfm::huggingface {

// DIR/config.json as it is.
Json read_config(const std::string& dir);

// Ids that end a text, as transformers reads them: eos_token_id, a number or a list, of
// DIR/generation_config.json, else of `config`.
std::vector<std::int32_t> end_ids(const Json& config, const std::string& dir);

// The model that a config.json describes, beside the tensors that `has` knows. Error(input) names
// the file and what is missing, unknown or not supported.
config::ModelConfig model_of(const io::JsonNode& config, const Has& has);

// A config.json for a model; members of `original` (a config.json, or empty) that this one does not
// set are kept, its model_type where that computes the same. Without an original, `ids` are written
// too, those that there are not as null: transformers puts ids of its own where it reads none.
// Error(usage) where transformers has no class for the combination of options.
std::string huggingface_config(const config::ModelConfig& model,
                               const std::optional<tokenizer::SpecialIds>& ids,
                               const std::string& original);

// The model_type of a config.json, or nothing.
std::string model_type(const std::string& config);

}  // namespace tfm::huggingface
