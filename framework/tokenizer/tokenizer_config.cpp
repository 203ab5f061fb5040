#include "tokenizer/tokenizer_config.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace tfm::tokenizer {
namespace {

using Json = nlohmann::json;

bool is_one_of(const std::string& name, std::initializer_list<std::string_view> classes) {
  return std::ranges::find(classes, name) != classes.end();
}

// The class without "Tokenizer" and "Fast"; where the file names none, the one of the model.
std::string class_of(const std::string& folder, const io::JsonNode& config) {
  std::string name = config.text("tokenizer_class", "");
  const std::string path = folder + "/config.json";
  if (name.empty() && std::filesystem::exists(path)) {
    const Json tree = io::read_json_file(path, std::size_t{64} << 20);
    const std::string type = io::JsonNode(tree, path).text("model_type", "");
    for (const auto& [of_model, its_class] : {std::pair{"bert", "Bert"},
                                              {"distilbert", "DistilBert"},
                                              {"electra", "Electra"},
                                              {"gpt2", "GPT2"},
                                              {"roberta", "Roberta"},
                                              {"bart", "Bart"},
                                              {"llama", "Llama"}})
      if (type == of_model) return its_class;
  }
  for (const std::string_view end : {"Fast", "Tokenizer"})
    if (name.ends_with(end)) name.resize(name.size() - end.size());
  return name;
}

}  // namespace

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

Settings change_components(const std::string& folder, const io::JsonNode& config, Json& tree) {
  Settings differences;
  const std::string name = class_of(folder, config);
  const auto set = [&](const char* member, const char* type, const char* setting,
                       const char* theirs, const Json& usual, bool obeyed, bool ignored) {
    const auto part = tree.find(member);
    if (part == tree.end() || !part->is_object() || part->value("type", Json()) != type) return;
    const auto node = config.find(setting);
    const Json wanted = node ? Json(node->boolean()) : usual;
    if (obeyed)
      (*part)[theirs] = wanted;
    else if (node && !ignored && part->value(theirs, Json()) != wanted)
      differences.push_back(std::string(setting) + " " + wanted.dump());
  };
  const bool bert = is_one_of(name, {"Bert", "DistilBert", "Electra", "MobileBert"}),
             generic = is_one_of(name, {"PreTrained", "TokenizersBackend"});
  for (const auto& [setting, theirs, usual] :
       {std::tuple{"do_lower_case", "lowercase", Json(true)},
        {"tokenize_chinese_chars", "handle_chinese_chars", Json(true)},
        {"strip_accents", "strip_accents", Json()}})
    set("normalizer", "BertNormalizer", setting, theirs, usual, bert, generic);
  set("pre_tokenizer", "ByteLevel", "add_prefix_space", "add_prefix_space", false,
      is_one_of(name, {"GPT2", "Roberta", "Bart", "CodeGen", "GPTNeoX"}),
      name == "TokenizersBackend");
  const auto puts_space = [&tree](const char* member, const char* component) {
    const auto part = tree.find(member);
    return part != tree.end() && part->dump().find(component) != std::string::npos;
  };
  if (name == "Llama" && !config.flag("add_prefix_space", true) &&
      (puts_space("normalizer", R"("Prepend")") || puts_space("pre_tokenizer", R"("always")") ||
       puts_space("pre_tokenizer", R"("first")")))
    differences.push_back("add_prefix_space false");
  return differences;
}

Settings change_tokens(const std::string& folder, const io::JsonNode& config,
                       PipelineParts& parts) {
  const auto add = [&](AddedToken token, bool again) {
    if (token.content.empty()) return;
    const auto known = std::ranges::find(parts.added, token.content, &AddedToken::content);
    if (known != parts.added.end()) {
      token.id = known->id;
      if (again) *known = std::move(token);
      return;
    }
    const auto entry =
        std::ranges::find(parts.entries, token.content, &VocabEntries::value_type::first);
    token.id = entry != parts.entries.end() ? entry->second
                                            : static_cast<std::int32_t>(parts.entries.size());
    if (entry == parts.entries.end()) parts.entries.emplace_back(token.content, token.id);
    parts.added.push_back(std::move(token));
  };
  for (auto& [id, token] : read_tokens_by_id(config)) add(token, true);
  const AddedToken special{.normalized = false};
  for (const char* member :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
    if (const auto node = config.find(member)) add(read_config_token(*node, special), false);
  if (const auto list = config.find("additional_special_tokens"))
    for (const io::JsonNode& node : list->items()) add(read_config_token(node, special), false);
  Settings differences;
  if (class_of(folder, config) != "Llama") return differences;
  for (const auto& [setting, ids] :
       {std::pair{"add_bos_token", &parts.before}, {"add_eos_token", &parts.after}})
    if (config.flag(setting, !ids->empty()) == ids->empty())
      differences.push_back(std::string(setting) + (ids->empty() ? " true" : " false"));
  return differences;
}

}  // namespace tfm::tokenizer
