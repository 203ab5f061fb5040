#pragma once
// Members of a config.json: what is read with a default, what must have one value, names of
// activations.
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
bool has_member(const io::JsonNode& c, const std::string& key);  // null or not
double real(const io::JsonNode& c, const std::string& key, double otherwise);
// pad_token_id as nn.Embedding's padding_idx, a row that gets no gradient as an input: -1 where it
// is null; a negative one counts from the end. `otherwise`: where it is absent.
std::int64_t padding(const io::JsonNode& c, std::int64_t vocab_size, std::int64_t otherwise);
// What the model cannot do unless the member has this value.
void must_be(const io::JsonNode& c, const std::string& key, bool value);
void must_say(const io::JsonNode& c, const std::string& key, const std::string& value);

// tfm's name of the activation `name`, which `key` asks for.
config::Activation activation_of(const io::JsonNode& c, const std::string& key,
                                 const std::string& name, bool gated);
// Members of a config.json that is written; nullptr: null.
using MemberValue = std::variant<std::nullptr_t, bool, std::int64_t, double, std::string>;
void set(Json& j, std::initializer_list<std::pair<const char*, MemberValue>> members);
// Makes the member an object without members.
Json& set_object(Json& j, const char* key);
bool contains(const Json& j, const char* key);  // null or not
std::optional<double> number_in(const Json& j, const char* key);

// The name that `j` has for it already, as several mean the same.
std::string activation_name(const Json& j, const char* key, config::Activation activation);

}  // namespace tfm::huggingface
