#pragma once
// config.json of Hugging Face's transformers and the `model` section.
#include <optional>
#include <string>

#include "huggingface/architecture.h"
#include "tokenizer/tokenizer.h"

namespace tfm::huggingface {

// DIR/config.json, with the member where transformers reads a second name of it too. Error(input)
// where the two differ.
Json read_config(const std::string& dir);

// What DIR/generation_config.json, or without one `config`, says of the likeliest text, as
// transformers reads it; but ends are also those of `config` where that file has none.
struct GenerationRules {
  std::vector<std::int32_t> end_ids;     // eos_token_id, a number or a list
  std::vector<std::int32_t> banned_ids;  // bad_words_ids of one token that is no end
  std::vector<std::string> others;       // what it asks for beyond these, by name
};
GenerationRules generation_rules(const Json& config, const std::string& dir);

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
