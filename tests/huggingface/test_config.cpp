// What config.json means where members are absent, null or have older names: as recorded from
// transformers (tests/fixtures/make_config_defaults.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "config/fields.h"
#include "config/settings.h"
#include "core/error.h"
#include "huggingface/config.h"
#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "support/recorded.h"

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

using Meaning = std::map<std::string, std::string>;

// The settings of the model of a config.json with these tensors, and of its generation; or why it
// is refused.
Meaning meaning_of(const Json& config, const std::string& dir, const huggingface::Has& has) {
  std::ofstream(dir + "/config.json") << config.dump();
  try {
    const Json read = huggingface::read_config(dir);
    config::ModelConfig model = huggingface::model_of({read, "config.json"}, has);
    Meaning meaning;
    for (const config::Setting& s : config::settings_of(
             config::dump_fields([&](config::FieldVisitor& v) { describe(model, v); })))
      meaning["model." + s.key] = s.value;
    meaning["tied"] = model.tied_head() ? "true" : "false";
    const auto rules = huggingface::generation_rules(read, dir);
    meaning["start"] = std::to_string(rules.start_id) + " " + std::to_string(rules.model_start);
    meaning["ends"] = testing::PrintToString(rules.end_ids);
    meaning["banned"] = testing::PrintToString(rules.banned_ids);
    meaning["others"] = testing::PrintToString(rules.others);
    return meaning;
  } catch (const Error& e) {
    return {{"refused", test::without(e.what(), dir + "/")}};
  } catch (const std::exception& e) {
    ADD_FAILURE() << e.what() << ": " << config.dump();
    return {};
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
      Meaning meaning = meaning_of(without, dir, has_output_layer),
              expected = meaning_of(with, dir, has_output_layer);
      for (Meaning* m : {&meaning, &expected}) {
        if (m->contains("refused")) m->at("refused").clear();  // each names its own members
        // An end that config.json does not name is the tokenizer's, a start the model's.
        for (const char* of_generation : {"ends", "start"}) m->erase(of_generation);
      }
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

// Two configurations of each architecture, as their folders' names.
std::vector<std::string> two_of_each() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFixtures)) {
    const std::string name = entry.path().filename();
    if (name.ends_with("_0") || name.ends_with("_3")) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

huggingface::Has tensors_of(const io::SafetensorsReader& weights) {
  return [&](const std::string& tensor) { return weights.has(tensor); };
}

// Other values of a member; a null stands for none.
std::vector<Json> other_values(const Json& value) {
  if (value.is_boolean()) return {!value.get<bool>(), 1};
  if (value.is_number_integer())
    return {value.get<std::int64_t>() + 1, value.get<std::int64_t>() * 2, 0, -1, 0.5, nullptr};
  if (value.is_number()) return {value.get<double>() * 2, 0, 1, -0.5, nullptr};
  if (value.is_string()) return {"other", "gelu", "relu", nullptr};
  if (value.is_array() && !value.empty()) {
    Json shorter = value, longer = value, reversed = Json::array();
    shorter.erase(0), longer.push_back(value[0]);
    for (auto item = value.rbegin(); item != value.rend(); ++item) reversed.push_back(*item);
    return {shorter, longer, reversed, nullptr};
  }
  return {1, "other", true};
}

TEST(HuggingFaceConfig, OtherValuesOfEachMember) {
  const std::string dir = testing::TempDir() + "/config_values";
  io::create_directories(dir);
  std::ostringstream lines;
  for (const std::string& name : two_of_each()) {
    const Json whole = io::read_json_file(kFixtures + name + "/config.json", 1 << 20);
    const io::SafetensorsReader weights(kFixtures + name + "/model.safetensors");
    const huggingface::Has has = tensors_of(weights);
    const Meaning meaning = meaning_of(whole, dir, has);
    const auto record = [&](const Json& changed, const std::string& what) {
      std::string line;
      for (const auto& [key, value] : meaning_of(changed, dir, has)) {
        const auto was = meaning.find(key);
        if (was == meaning.end() || was->second != value) line += " " + key + " " + value + ";";
      }
      std::ranges::replace(line, '\n', ' ');
      if (!line.empty()) lines << name << " " << what << ":" << line << "\n";
    };
    const auto vary = [&](const std::string& path) {
      const Json::json_pointer at(path);
      Json without = whole;
      without.at(at.parent_pointer()).erase(at.back());
      record(without, path + " absent");
      for (const Json& value : other_values(whole.at(at))) {
        Json other = whole;
        other.at(at) = value;
        record(other, path + " = " + value.dump());
      }
    };
    for (const auto& [member, value] : whole.items()) {
      vary("/" + member);
      if (value.is_object() && member != "id2label" && member != "label2id")
        for (const auto& [inner, unused] : value.items()) {
          vary("/" + member + "/" + inner);
        }
    }
  }
  test::expect_recorded("config_json_values", lines.str());
}

// Gives one value of a section another value, of all other values that it could have: each number
// two.
class OneOther : public config::KeyVisitor {
 public:
  explicit OneOther(std::size_t wanted) : wanted_(wanted) {}
  void value(const config::Field& f, std::int64_t& x) override { set(f, x, {x + 1, x * 2}); }
  void value(const config::Field& f, std::uint64_t& x) override { set(f, x, {x + 1}); }
  void value(const config::Field& f, double& x) override { set(f, x, {x * 2 + 0.25, x / 2}); }
  void value(const config::Field& f, bool& x) override { set(f, x, {!x}); }
  void value(const config::Field& f, std::string& x) override {
    std::vector<std::string> others;
    for (const std::string_view choice : f.choices)
      if (choice != x) others.emplace_back(choice);
    set(f, x, others);
  }
  std::string what;  // empty: there are fewer values

 private:
  template <class T>
  void set(const config::Field& f, T& x, const std::vector<T>& others) {
    for (const T& other : others)
      if (seen_++ == wanted_) what = key_of(f) + " = " + config::yaml_of(f, other), x = other;
  }
  std::size_t wanted_, seen_ = 0;
};

// What is written for a model that differs in one setting from one that was read: the members that
// differ, or why there are none.
TEST(HuggingFaceConfig, ExportsOfModelsWithOtherSettings) {
  std::ostringstream lines;
  const tokenizer::SpecialIds ids{.pad = 3, .begin = 1, .end = 2};
  const auto members_of = [&](const config::ModelConfig& m, const std::string& original) {
    try {
      return Json::parse(huggingface::huggingface_config(
          m, original.empty() ? std::optional(ids) : std::nullopt, original));
    } catch (const Error& e) {
      return Json{{"refused", e.what()}};
    }
  };
  for (const std::string& name : two_of_each()) {
    const Json original = huggingface::read_config(kFixtures + name);
    const io::SafetensorsReader weights(kFixtures + name + "/model.safetensors");
    const config::ModelConfig model = huggingface::model_of({original, name}, tensors_of(weights));
    const Json alone = members_of(model, ""), kept = members_of(model, original.dump());
    lines << name << " alone: " << alone.dump() << "\n"
          << name << " kept: " << Json::diff(original, kept).dump() << "\n";
    for (std::size_t n = 0;; ++n) {
      config::ModelConfig other = model;
      OneOther change(n);
      describe(other, change);
      if (change.what.empty()) break;
      bool valid = true;
      config::check_model(other, [&](const auto&, const auto&, const auto&) { valid = false; });
      if (!valid) continue;
      Json now = members_of(other, "");
      std::string line;
      if (now.contains("refused"))
        line = now.at("refused");
      else if (now != alone)
        line = Json::diff(alone, now).dump();
      if (!line.empty()) lines << name << " with " << change.what << ": " << line << "\n";
    }
  }
  test::expect_recorded("config_json_exports", lines.str());
}

// Transformers reads the original length of a scaled rope beside the scaling, where that has none.
TEST(HuggingFaceConfig, TheOriginalLengthMayStandBesideTheScaling) {
  Json config = io::read_json_file(std::string(kFixtures) + "llama_0/config.json", 1 << 20);
  for (const char* member : {"rope_parameters", "rope_scaling", "rope_theta"}) config.erase(member);
  config["max_position_embeddings"] = 4096;
  const auto original = [&](const Json& scaling, const Json& more) {
    Json other = config;
    other["rope_scaling"] = scaling;
    other.update(more);
    return huggingface::model_of({other, "config.json"}, has_output_layer)
        .rope.scaling.original_max_seq_len;
  };
  const Json within{
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 1024}};
  Json without = within;
  without.erase("original_max_position_embeddings");
  EXPECT_EQ(original(within, Json::object()), 1024);
  EXPECT_EQ(original(without, {{"original_max_position_embeddings", 2048}}), 2048);
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

TEST(HuggingFaceConfig, LabelsAreNamedOrCounted) {
  const Json whole = huggingface::read_config(std::string(kFixtures) + "bert_sequences_0");
  const auto head = [&](const Json& members) {
    Json config = whole;
    for (const char* member : {"id2label", "num_labels", "problem_type"}) config.erase(member);
    config.update(members);
    return huggingface::model_of(
               {config, "config.json"},
               [](const std::string& tensor) { return tensor.starts_with("classifier."); })
        .heads.at(0);
  };
  const auto refused = [&](const Json& members) {
    try {
      head(members);
      return std::string("nothing");
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::input);
      return std::string(e.what());
    }
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(head(Json::object()).classes, 2);
  EXPECT_EQ(head({{"num_labels", 5}}).classes, 5);
  EXPECT_EQ(head({{"num_labels", 5}}).labels, Names{});
  EXPECT_EQ(head({{"num_labels", 1}}).type, "regress");
  const Json named{{"id2label", {{"1", "b"}, {"0", "a"}, {"2", "c"}}}, {"num_labels", 5}};
  EXPECT_EQ(head(named).labels, (Names{"a", "b", "c"}));
  EXPECT_EQ(head(named).classes, 3);
  EXPECT_EQ(head({{"id2label", {{"0", "LABEL_0"}, {"1", "LABEL_1"}}}}).labels, Names{});
  EXPECT_EQ(head({{"id2label", {{"0", "LABEL_1"}, {"1", "LABEL_0"}}}}).labels,
            (Names{"LABEL_1", "LABEL_0"}));
  EXPECT_NE(refused({{"id2label", {{"0", "a"}, {"2", "c"}}}}).find("1"), std::string::npos);
  EXPECT_NE(refused({{"problem_type", "multi_label_classification"}}).find("several labels"),
            std::string::npos);
  EXPECT_NE(refused({{"problem_type", "regression"}}).find("found 2 labels; expected one"),
            std::string::npos);
  EXPECT_EQ(head({{"problem_type", "single_label_classification"}}).type, "classify");
  EXPECT_EQ(head({{"architectures", {"BertForTokenClassification"}}}).type, "tag");
  for (const Json& classes : {Json::array({"BertForMaskedLM"}), Json::array(), Json()})
    EXPECT_NE(refused({{"architectures", classes}})
                  .find("expected BertForSequenceClassification or BertForTokenClassification"),
              std::string::npos);
}

TEST(HuggingFaceConfig, ExportsNameTheIdsThatTheModelKnows) {
  const Json original = huggingface::read_config(std::string(kFixtures) + "gpt2_1");
  const config::ModelConfig m =
      huggingface::model_of({original, "gpt2_1"}, [](const std::string&) { return false; });
  const auto last = static_cast<std::int32_t>(m.vocab_size - 1);
  const auto written = [&](const std::optional<tokenizer::SpecialIds>& ids, const Json& from) {
    return Json::parse(huggingface::huggingface_config(m, ids, from.is_null() ? "" : from.dump()));
  };
  const Json own = written(tokenizer::SpecialIds{.pad = last + 1, .begin = last}, nullptr);
  EXPECT_EQ(own.at("bos_token_id"), last);
  EXPECT_TRUE(own.at("eos_token_id").is_null());
  EXPECT_TRUE(own.at("pad_token_id").is_null()) << "not one of the model's";
  EXPECT_EQ(own.at("torch_dtype"), "float32");
  EXPECT_FALSE(written({}, nullptr).contains("bos_token_id"));
  Json other = original;
  other["bos_token_id"] = 3, other["transformers_weights"] = "model.safetensors";
  other["architectures"] = {"GPT2ForSomething"}, other["transformers_version"] = "9.9";
  const Json kept = written(tokenizer::SpecialIds{.begin = 5}, other);
  EXPECT_EQ(kept.at("bos_token_id"), 3) << "the original's";
  EXPECT_FALSE(kept.contains("transformers_weights"));
  EXPECT_EQ(kept.at("architectures"), other.at("architectures"));
  EXPECT_EQ(kept.at("transformers_version"), "9.9");
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

TEST(HuggingFaceConfig, QueriesOfNoRankAreNull) {
  Json read = huggingface::read_config(std::string(kFixtures) + "deepseek_v3_0");
  for (const Json& rank : {Json(24), Json(nullptr)}) {
    read["q_lora_rank"] = rank;
    const config::ModelConfig m =
        huggingface::model_of({read, "deepseek_v3_0"}, [](const std::string&) { return false; });
    EXPECT_EQ(m.attention.q_rank, rank.is_null() ? 0 : 24);
    EXPECT_EQ(Json::parse(huggingface::huggingface_config(m, {}, "")).at("q_lora_rank"), rank);
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
