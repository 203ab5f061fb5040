#include "huggingface/members.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace tfm::huggingface {
namespace {

constexpr std::int64_t kMostLayers = 10000;

struct ActivationName {
  const char* theirs;
  config::Activation plain;
  std::optional<config::Activation> gated = {};
};
using enum config::Activation;
constexpr ActivationName kActivations[] = {
    {"gelu_new", gelu_tanh, geglu}, {"gelu_pytorch_tanh", gelu_tanh, geglu},
    {"gelu", gelu, geglu_exact},    {"relu", relu},
    {"silu", silu, swiglu},         {"swish", silu, swiglu}};

}  // namespace

std::int64_t whole(const io::JsonNode& c, const std::string& key,
                   std::optional<std::int64_t> otherwise, std::int64_t most) {
  const auto found = c.find(key);
  if (!found && otherwise) return *otherwise;
  return (found ? *found : c.at(key)).integer(0, most);
}
std::int64_t layers(const io::JsonNode& c, const std::string& key, std::int64_t otherwise) {
  return whole(c, key, otherwise, kMostLayers);
}
bool has_member(const io::JsonNode& c, const std::string& key) {
  return std::ranges::any_of(c.members(), [&](const auto& m) { return m.first == key; });
}
double real(const io::JsonNode& c, const std::string& key, double otherwise) {
  const auto found = c.find(key);
  return found ? found->number() : otherwise;
}
std::int64_t padding(const io::JsonNode& c, std::int64_t vocab_size, std::int64_t otherwise) {
  if (!has_member(c, "pad_token_id")) return otherwise;
  const auto found = c.find("pad_token_id");
  if (!found) return -1;
  const std::int64_t id = found->integer(-vocab_size, vocab_size - 1);
  return id < 0 ? vocab_size + id : id;
}
void must_be(const io::JsonNode& c, const std::string& key, bool value) {
  if (c.flag(key, value) != value)
    c.at(key).fail(value ? "false is not supported; expected true"
                         : "true is not supported; expected false");
}
void must_say(const io::JsonNode& c, const std::string& key, const std::string& value) {
  if (c.text(key, value) != value)
    c.at(key).fail("'" + c.text(key, value) + "' is not supported; expected '" + value + "'");
}

void set(Json& j, std::initializer_list<std::pair<const char*, MemberValue>> members) {
  for (const auto& [key, value] : members)
    std::visit([&j, key = key](const auto& x) { j[key] = x; }, value);
}
Json& set_object(Json& j, const char* key) { return j[key] = Json::object(); }
bool contains(const Json& j, const char* key) { return j.contains(key); }
std::optional<double> number_in(const Json& j, const char* key) {
  const auto found = j.find(key);
  if (found == j.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

config::Activation activation_of(const io::JsonNode& c, const std::string& key,
                                 const std::string& name, bool gated) {
  for (const auto& a : kActivations)
    if (const auto ours = gated ? a.gated : std::optional(a.plain); ours && name == a.theirs)
      return *ours;
  c.at(key).fail("the activation '" + name + "' is not supported" +
                 (gated ? " in a gated layer" : ""));
}
std::string activation_name(const Json& j, const char* key, config::Activation activation) {
  const char* name = nullptr;
  for (const auto& a : kActivations)
    if (activation == a.plain || activation == a.gated)
      if (!name || (j.contains(key) && j[key] == a.theirs)) name = a.theirs;
  TFM_CHECK(name, "activation " + config::word(activation));
  return name;
}

}  // namespace tfm::huggingface
