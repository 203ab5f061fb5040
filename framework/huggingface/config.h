#pragma once
// Conversion between config.json of Hugging Face's transformers and the `model` section.
#include <optional>
#include <string>

#include "huggingface/architecture.h"
#include "tokenizer/tokenizer.h"

namespace tfm::huggingface {

// Reads DIR/config.json. For members with two names in transformers, a value under the second name
// is added under the first; Error(input) if both are there and differ.
Json read_config(const std::string& dir);

// The generation settings of DIR/generation_config.json, or without that file of `config`, as
// transformers reads them for the likeliest text. If that file has no ends, those of `config`
// count.
struct GenerationRules {
  // That a translation begins with, in place of the one of the model's configuration; -1: none.
  std::int64_t start_id = -1, model_start = -1;
  std::vector<std::int32_t> end_ids;     // eos_token_id, a number or a list
  std::vector<std::int32_t> banned_ids;  // bad_words_ids of one token that is not an end
  std::vector<std::string> others;       // names of other settings that it asks for
};
GenerationRules generation_rules(const Json& config, const std::string& dir);

// The model that a config.json describes, given the tensors that `has` knows. Error(input) names
// the file and what is missing, unknown or not supported.
config::ModelConfig model_of(const io::JsonNode& config, const Has& has);

// A config.json for a model. Members of `original` (a config.json, or empty) that are not set here
// are kept, and its model_type if that computes the model. Without an original, `ids` are written
// too, missing ones as null, because transformers substitutes its own where there are none.
// Error(usage) if no class of transformers computes the combination of options.
std::string huggingface_config(const config::ModelConfig& model,
                               const std::optional<tokenizer::SpecialIds>& ids,
                               const std::string& original);

// Sets special ids in DIR/generation_config.json, if it exists, to those of the config.json written
// there: the ones that the model has in place of those of `original`; without an original, all.
void update_generation_config(const std::string& dir, const config::ModelConfig& model,
                              const std::string& original);

// The model_type of a config.json, or "".
std::string model_type(const std::string& config);

}  // namespace tfm::huggingface
