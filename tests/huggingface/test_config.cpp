// What config.json means where members are absent, null or have older names: as recorded from
// transformers (tests/fixtures/make_config_defaults.py).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "config/settings.h"
#include "core/error.h"
#include "huggingface/config.h"
#include "io/file.h"
#include "io/json.h"

namespace tfm {
namespace {

using huggingface::Json;

// A value as a dumped configuration has it.
bool is_value(const Json& expected, std::string found) {
  std::erase(found, '"');
  if (expected.is_boolean()) return found == (expected.get<bool>() ? "true" : "false");
  if (expected.is_number()) return std::strtod(found.c_str(), nullptr) == expected.get<double>();
  return found == expected.get<std::string>();
}

// "model.dropout.ffn" stands in that of "model.dropout": {embedding: 0.1, ..., ffn: 0.1}.
std::string value_of(const std::map<std::string, std::string>& values, const std::string& key) {
  if (const auto found = values.find(key); found != values.end()) return found->second;
  const auto section = values.find(key.substr(0, key.find('.', key.find('.') + 1)));
  if (section == values.end()) return "nothing";
  std::smatch found;
  const std::regex member("[{ ]" + key.substr(key.rfind('.') + 1) + ": ([^,}]*)");
  return std::regex_search(section->second, found, member) ? found[1].str() : "nothing";
}

void expect_means(const config::ModelConfig& model, const Json& means, const std::string& what) {
  config::Config c;
  c.model = model;
  const auto values = config::values_by_key(c);
  for (const auto& [key, expected] : means.items()) {
    if (expected.is_null()) continue;  // it means nothing here
    const std::string value = key == "tied"       ? (model.tied_head() ? "true" : "false")
                              : key == "ffn_bias" ? (model.has_ffn_bias() ? "true" : "false")
                                                  : value_of(values, "model." + key);
    EXPECT_TRUE(is_value(expected, value))
        << what << ": " << key << ": expected " << expected << ", got " << value;
  }
}

// Tensors of a model with an output layer of its own.
bool has_output_layer(const std::string& tensor) {
  return tensor == "shared.weight" || tensor.starts_with("lm_head.") ||
         tensor.ends_with("decoder.weight") || tensor.ends_with("coder.embed_tokens.weight");
}

TEST(HuggingFaceConfig, MeansWhatItMeansInTransformers) {
  const Json all =
      io::read_json_file(TFM_SOURCE_DIR "/tests/fixtures/config_defaults.json", 1 << 24);
  const std::string dir = testing::TempDir() + "/config_defaults";
  io::create_directories(dir);
  std::size_t cases = 0;
  const auto check = [&](const Json& config, const Json& means, const std::string& what) {
    ++cases;
    io::replace_file(dir + "/config.json", config.dump());
    try {
      const Json read = huggingface::read_config(dir);
      expect_means(huggingface::model_of({read, what}, has_output_layer), means, what);
      EXPECT_FALSE(means.contains("refused")) << what;
    } catch (const Error& e) {
      const std::string text = e.what();
      EXPECT_TRUE(means.contains("refused") &&
                  text.find(means.at("refused").get<std::string>()) != text.npos)
          << what << ": " << text;
    }
  };
  for (const auto& [kind, f] : all.items()) {
    check(f.at("config"), f.at("means"), kind);
    for (const Json& change : f.at("cases")) {
      Json config = f.at("config"), means = f.at("means");
      for (const Json& member : change[0]) config.erase(member.get<std::string>());
      config.update(change[1]);
      means.update(change[2]);
      check(config, means, kind + " without " + change[0].dump() + " with " + change[1].dump());
    }
  }
  EXPECT_GT(cases, 300U);
}

constexpr const char* kFixtures = TFM_SOURCE_DIR "/tests/fixtures/huggingface/";

// What config.json says, or "refused".
std::map<std::string, std::string> meaning_of(const Json& config, const std::string& dir) {
  io::replace_file(dir + "/config.json", config.dump());
  try {
    config::Config c;
    c.model = huggingface::model_of({huggingface::read_config(dir), dir}, has_output_layer);
    std::map<std::string, std::string> meaning = config::values_by_key(c);
    meaning["tied"] = c.model.tied_head() ? "true" : "false";
    return meaning;
  } catch (const Error&) {
    return {{"refused", ""}};
  }
}

TEST(HuggingFaceConfig, AbsentMembersAreWhatTransformersTakesThemFor) {
  const Json all = io::read_json_file(TFM_SOURCE_DIR "/tests/fixtures/config_absent.json", 1 << 24);
  const std::string dir = testing::TempDir() + "/config_absent";
  io::create_directories(dir);
  std::size_t understood = 0;
  for (const auto& [name, members] : all.items()) {
    const Json whole = io::read_json_file(kFixtures + name + "/config.json", 1 << 20);
    for (const auto& [member, instead] : members.items()) {
      Json without = whole;
      without.erase(member);
      Json with = without;
      if (instead.contains("rope_parameters"))
        for (const char* older : {"rope_theta", "rope_scaling", "partial_rotary_factor",
                                  "rope_local_base_freq", "global_rope_theta", "local_rope_theta"})
          with.erase(older);
      with.update(instead);
      const auto meaning = meaning_of(without, dir), expected = meaning_of(with, dir);
      std::vector<std::pair<std::string, std::string>> others;
      std::ranges::set_difference(meaning, expected, std::back_inserter(others));
      EXPECT_EQ(others.size() + (meaning.size() != expected.size()), 0U)
          << name << " without " << member << " instead of " << instead << ": "
          << testing::PrintToString(others);
      understood += !meaning.contains("refused");
    }
  }
  EXPECT_GT(understood, 1000U);
}

TEST(HuggingFaceConfig, OneLabelWithoutAProblemIsANumber) {
  Json read = huggingface::read_config(std::string(kFixtures) + "bert_sequences_0");
  const auto has = [](const std::string& tensor) { return tensor.starts_with("classifier."); };
  const auto type_of = [&](const Json& problem, const Json& labels) {
    read["problem_type"] = problem;
    if (problem.is_null()) read.erase("problem_type");
    read["id2label"] = labels;
    return huggingface::model_of({read, "config.json"}, has).heads.at(0).type;
  };
  const Json one{{"0", "score"}}, two{{"0", "no"}, {"1", "yes"}};
  EXPECT_EQ(type_of(nullptr, one), "regress");
  EXPECT_EQ(type_of("regression", one), "regress");
  EXPECT_EQ(type_of(nullptr, two), "classify");
}

TEST(HuggingFaceConfig, ExportsKeepTheTypeUnderEitherName) {
  for (const auto& [key, other] : {std::pair{"dtype", "torch_dtype"}, {"torch_dtype", "dtype"}}) {
    Json read = huggingface::read_config(std::string(kFixtures) + "gpt2_0");
    read.erase(other);
    read[key] = "bfloat16";
    const config::ModelConfig m =
        huggingface::model_of({read, "gpt2_0"}, [](const std::string&) { return false; });
    const Json written = Json::parse(huggingface::huggingface_config(m, {}, read.dump()));
    EXPECT_EQ(written[key], "bfloat16");
    EXPECT_EQ(written[other], "bfloat16");
  }
}

TEST(HuggingFaceConfig, EndsAreThoseOfTheModelWhereGenerationNamesNone) {
  const std::string dir = testing::TempDir() + "/generation_ends";
  io::create_directories(dir);
  const auto ends = [&](const Json& generation) {
    io::replace_file(dir + "/generation_config.json", generation.dump());
    return huggingface::generation_rules({{"eos_token_id", {6, 9}}}, dir).end_ids;
  };
  using Ids = std::vector<std::int32_t>;
  EXPECT_EQ(ends({{"eos_token_id", 4}}), (Ids{4}));
  EXPECT_EQ(ends({{"bos_token_id", 4}}), (Ids{6, 9}));
  EXPECT_EQ(ends({{"eos_token_id", nullptr}}), (Ids{6, 9}));
}

TEST(HuggingFaceConfig, OfVectorsNamesTheClassWithoutAHead) {
  for (const auto& [name, expected] : {std::pair{"bert_0", "BertModel"},
                                       {"big_bird_0", "BigBirdModel"},
                                       {"gemma2_0", "Gemma2Model"},
                                       {"gemma3_text_0", "Gemma3TextModel"},
                                       {"gpt2_0", "GPT2Model"},
                                       {"qwen2_moe_0", "Qwen2MoeModel"}}) {
    const Json read = huggingface::read_config(std::string(kFixtures) + name);
    config::ModelConfig m =
        huggingface::model_of({read, name}, [](const std::string&) { return false; });
    m.heads = {{.type = "embed", .labels = {}}};
    const Json written = Json::parse(huggingface::huggingface_config(m, {}, read.dump()));
    EXPECT_EQ(written["architectures"], Json::array({expected})) << name;
  }
}

}  // namespace
}  // namespace tfm
