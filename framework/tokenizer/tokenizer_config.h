#pragma once
// tokenizer_config.json, in which transformers keeps the class and the settings of a tokenizer.
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "io/json.h"
#include "tokenizer/added_tokens.h"

namespace tfm::tokenizer {

inline constexpr const char* tokenizer_config_file = "/tokenizer_config.json";

// The file of a directory; an empty object where there is none. Error(input) if it is not JSON.
nlohmann::json read_tokenizer_config(const std::string& folder);

// A token that the file gives as an object, with its flags, or as its content alone.
AddedToken read_config_token(const io::JsonNode& node, AddedToken token);
// Its added_tokens_decoder, by id.
std::map<std::int32_t, AddedToken> read_tokens_by_id(const io::JsonNode& config);

}  // namespace tfm::tokenizer
