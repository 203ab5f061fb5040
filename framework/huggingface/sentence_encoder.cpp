#include "huggingface/sentence_encoder.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/strings.h"
#include "huggingface/members.h"
#include "io/json.h"

namespace tfm::huggingface {
namespace {

constexpr const char *kModules = "/modules.json", *kLength = "sentence_bert_config.json",
                     *kSettings = "/config_sentence_transformers.json";
constexpr std::size_t kMostJson = 1 << 20;

// Ways of pooling: the flag, and the word that newer files have instead.
struct Way {
  const char *flag, *word;
  config::Pool pool;
};
constexpr Way kWays[] = {{"pooling_mode_cls_token", "cls", config::Pool::first},
                         {"pooling_mode_mean_tokens", "mean", config::Pool::mean},
                         {"pooling_mode_lasttoken", "lasttoken", config::Pool::last}};

bool is_there(const std::string& file) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(file, ignored);
}

config::Pool pool_of(const std::string& file) {
  const Json tree = io::read_json_file(file, kMostJson);
  const io::JsonNode c(tree, file);
  constexpr const char* kExpected = " is not supported; expected one of cls, mean and lasttoken";
  std::optional<config::Pool> found;
  const auto mode = c.find("pooling_mode");
  for (const Way& way : kWays) {
    if (mode ? mode->string() != way.word : !c.flag(way.flag, false)) continue;
    if (found) c.fail(std::string(way.flag) + ": a second way of pooling" + kExpected);
    found = way.pool;
  }
  for (const char* other : {"pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens",
                            "pooling_mode_weightedmean_tokens"})
    if (c.flag(other, false)) c.at(other).fail(std::string("this way of pooling") + kExpected);
  if (!found) c.fail(std::string("this way of pooling") + kExpected);
  return *found;
}

}  // namespace

std::optional<config::HeadConfig> sentence_head(const std::string& dir) {
  const std::string file = dir + kModules;
  if (!is_there(file)) return {};
  const Json tree = io::read_json_file(file, kMostJson);
  config::HeadConfig head{.type = "embed", .name = "embed", .labels = {}, .normalize = false};
  std::size_t at = 0;
  bool pools = false;
  for (const io::JsonNode& module : io::JsonNode(tree, file).items()) {
    const std::string type = module.at("type").string(), path = module.text("path", "");
    const std::string name = type.substr(type.rfind('.') + 1);
    const bool transforms = name == "Transformer" && at == 0 && path.empty();
    if (name == "Pooling" && at == 1) {
      head.pool = pool_of(dir + "/" + path + "/config.json");
      pools = true;
    } else if (name == "Normalize" && at == 2) {
      head.normalize = true;
    } else if (!transforms) {
      module.fail("module " + in_quotes(type) + " in " + in_quotes(path) +
                  " is not supported here; expected Transformer in this directory, Pooling, and "
                  "perhaps Normalize");
    }
    ++at;
  }
  if (!pools) throw Error(ExitCode::input, file + ": there is no module Pooling; expected one");
  if (is_there(dir + kSettings)) {
    const Json settings = io::read_json_file(dir + kSettings, kMostJson);
    if (const auto prompt = io::JsonNode(settings, dir + kSettings).find("default_prompt_name"))
      prompt->fail("a prompt before every text is not supported; expected null");
  }
  return head;
}

std::optional<std::int64_t> sentence_length(const std::string& dir) {
  const std::string file = dir + "/" + kLength;
  if (!is_there(file)) return {};
  const Json tree = io::read_json_file(file, kMostJson);
  const io::JsonNode c(tree, file);
  must_be(c, "do_lower_case", false);
  if (const auto length = c.find("max_seq_length")) return length->integer(1, 1 << 30);
  return {};
}

std::vector<Sidecar> sentence_files(const config::ModelConfig& m) {
  const config::HeadConfig* head = m.head_of_type("embed");
  if (!head) return {};
  Json modules = Json::array(), pooling{{"word_embedding_dimension", m.d_model}};
  const auto add = [&](const char* name, const std::string& path) {
    const std::size_t at = modules.size();
    modules.push_back({{"idx", at},
                       {"name", std::to_string(at)},
                       {"path", path},
                       {"type", std::string("sentence_transformers.models.") + name}});
  };
  add("Transformer", "");
  add("Pooling", "1_Pooling");
  if (head->normalize) add("Normalize", "2_Normalize");
  for (const Way& way : kWays) pooling[way.flag] = head->pool == way.pool;
  for (const char* other : {"pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens",
                            "pooling_mode_weightedmean_tokens"})
    pooling[other] = false;
  const Json length{{"max_seq_length", m.max_seq_len}, {"do_lower_case", false}};
  return {{"modules.json", "", modules.dump(2) + "\n"},
          {"1_Pooling/config.json", "", pooling.dump(2) + "\n"},
          {kLength, "", length.dump(2) + "\n"}};
}

}  // namespace tfm::huggingface
