#pragma once
// Reading and writing members of a config.json: members with a default, members that must have one
// value, names of activations.
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "config/options.h"
#include "io/json.h"

namespace tfm::huggingface {

using Json = nlohmann::json;

std::int64_t whole(const io::JsonNode& c, const std::string& key,
                   std::optional<std::int64_t> otherwise = {},
                   std::int64_t most = std::int64_t{1} << 31);
std::int64_t layers(const io::JsonNode& c, const std::string& key, std::int64_t otherwise);
bool has_member(const io::JsonNode& c, const std::string& key);  // even if it is null
double real(const io::JsonNode& c, const std::string& key, double otherwise);
// pad_token_id as padding_idx of nn.Embedding, a row that gets no gradient as an input: `otherwise`
// if absent, -1 if null; negative ids count from the end.
std::int64_t padding(const io::JsonNode& c, std::int64_t vocab_size, std::int64_t otherwise);
// Error(input) unless the member, if present, has this value.
void must_be(const io::JsonNode& c, const std::string& key, bool value);
void must_say(const io::JsonNode& c, const std::string& key, const std::string& value);

// The activation that transformers calls `name` and that `key` asks for; `gated`: in a gated layer.
config::Activation activation_of(const io::JsonNode& c, const std::string& key,
                                 const std::string& name, bool gated);
// The value of a member that is written; nullptr: null.
using MemberValue = std::variant<std::nullptr_t, bool, std::int64_t, double, std::string>;
void set(Json& j, std::initializer_list<std::pair<const char*, MemberValue>> members);
// Makes the member an empty object.
Json& set_object(Json& j, const char* key);
bool contains(const Json& j, const char* key);  // even if it is null
std::optional<double> number_in(const Json& j, const char* key);

// The name of an activation in transformers. If several names mean the same, the one that `j` has
// already is kept.
std::string activation_name(const Json& j, const char* key, config::Activation activation);

}  // namespace tfm::huggingface
