#pragma once
// tokenizer_config.json, in which transformers keeps the class and the settings of a tokenizer.
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "io/json.h"
#include "tokenizer/pipeline.h"

namespace tfm::tokenizer {

inline constexpr const char* tokenizer_config_file = "/tokenizer_config.json";

// The file of a directory; an empty object where there is none. Error(input) if it is not JSON.
nlohmann::json read_tokenizer_config(const std::string& folder);

// A token that the file gives as an object, with its flags, or as its content alone.
AddedToken read_config_token(const io::JsonNode& node, AddedToken token);
// Its added_tokens_decoder, by id.
std::map<std::int32_t, AddedToken> read_tokens_by_id(const io::JsonNode& config);

// These change what the tokenizer.json beside the file says as transformers 4 and 5 do: what BERT's
// classes do to case, accents and Chinese characters; the space that GPT-2's put before a text; the
// special tokens. They return the settings of the file that the two do not both obey.
using Settings = std::vector<std::string>;
Settings change_components(const std::string& folder, const io::JsonNode& config,
                           nlohmann::json& tree);
Settings change_tokens(const std::string& folder, const io::JsonNode& config, PipelineParts& parts);

}  // namespace tfm::tokenizer
