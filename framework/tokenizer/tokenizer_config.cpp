#include "tokenizer/tokenizer_config.h"

#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace tfm::tokenizer {
using Json = nlohmann::json;

Json read_tokenizer_config(const std::string& folder) {
  const std::string path = folder + tokenizer_config_file;
  if (!std::filesystem::exists(path)) return Json::object();
  return io::read_json_file(path, std::size_t{64} << 20);
}

AddedToken read_config_token(const io::JsonNode& node, AddedToken token) {
  if (node.is_string()) {
    token.content = node.string();
    return token;
  }
  token.content = node.at("content").string();
  token.single_word = node.flag("single_word", false);
  token.lstrip = node.flag("lstrip", false);
  token.rstrip = node.flag("rstrip", false);
  token.normalized = node.flag("normalized", !node.flag("special", false));
  return token;
}

std::map<std::int32_t, AddedToken> read_tokens_by_id(const io::JsonNode& config) {
  std::map<std::int32_t, AddedToken> tokens;
  const auto all = config.find("added_tokens_decoder");
  if (!all) return tokens;
  for (const auto& [key, node] : all->members()) {
    std::int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= 1 << 24)
      node.fail("expected an id for a name");
    tokens[id] = read_config_token(node, {.id = id});
  }
  return tokens;
}

}  // namespace tfm::tokenizer
