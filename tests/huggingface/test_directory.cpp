// Directories of Hugging Face: which files belong to one, weights read and written again, settings
// of generation and of sentence encoders.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/half.h"
#include "huggingface/config.h"
#include "huggingface/export.h"
#include "huggingface/members.h"
#include "huggingface/mxfp4.h"
#include "huggingface/sentence_encoder.h"
#include "huggingface/sidecars.h"
#include "huggingface/weights.h"
#include "huggingface/windows.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "support/data_files.h"

namespace tfm {
namespace {

namespace fs = std::filesystem;
namespace hf = huggingface;
using hf::Json;
using test::expect_error;

const std::string kModelFolders = std::string(TFM_SOURCE_DIR) + "/tests/fixtures/huggingface/";

class Directory : public testing::Test {
 protected:
  std::string put(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(folder_ / name).parent_path());
    return test::put(folder_ / name, text);
  }
  std::string put(const std::string& name, const Json& json) const {
    return put(name, json.dump());
  }
  // A copy of a fixture's configuration and weights.
  std::string copy_of(const std::string& name) const {
    const std::string dir = folder_ / name;
    fs::create_directories(dir);
    for (const char* file : {"/config.json", "/model.safetensors"})
      fs::copy_file(kModelFolders + name + file, dir + file, fs::copy_options::overwrite_existing);
    return dir;
  }
  Json json(const std::string& name) const { return io::read_json_file(folder_ / name, 1 << 24); }
  const test::TemporaryFolder folder_;
};

TEST(DirectoryFiles, AreKnownByTheirNames) {
  for (const char* file :
       {"model.safetensors", "model.safetensors.index.json", "model-00001-of-00002.safetensors"})
    EXPECT_TRUE(hf::is_weights_file(file)) << file;
  for (const char* file :
       {"adapter_model.safetensors", "model.safetensors.json", "model-1-of-2.safetensors", "model",
        "unused.safetensors", "model-000001-of-0002.safetensors",
        "model-00001-of-000002.safetensors", "config.json"})
    EXPECT_FALSE(hf::is_weights_file(file)) << file;
  for (const char* file :
       {"tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt",
        "merges.txt", "special_tokens_map.json", "added_tokens.json", "spiece.model", "source.spm",
        "target.spm", "sentencepiece.bpe.model", "tokenizer.model.v3.json"})
    EXPECT_TRUE(hf::is_tokenizer_file(file)) << file;
  for (const char* file : {"config.json", "generation_config.json", "tokenizer.bin", "merges",
                           "my_vocab.txt", "tokenizer copy.json", "README.md", "vocab/a.txt"})
    EXPECT_FALSE(hf::is_tokenizer_file(file)) << file;
}

std::vector<std::string> names_of(const std::vector<hf::Sidecar>& files) {
  std::vector<std::string> names;
  for (const hf::Sidecar& f : files) names.push_back(f.name);
  return names;
}

TEST_F(Directory, SidecarsAreWhatModelsHaveBesideTheirWeights) {
  using Names = std::vector<std::string>;
  for (const char* name :
       {"m/config.json", "m/model.safetensors", "m/vocab.json", "m/tokenizer.json", "m/notes.txt",
        "m/generation_config.json", "m/chat_template.jinja", "m/preprocessor_config.json",
        "m/sentence_bert_config.json", "m/additional_chat_templates/tool.jinja",
        "m/additional_chat_templates/notes.txt"})
    put(name, std::string(name));
  EXPECT_EQ(names_of(hf::sidecars_in(folder_ / "m")),
            (Names{"additional_chat_templates/tool.jinja", "chat_template.jinja",
                   "generation_config.json", "preprocessor_config.json",
                   "sentence_bert_config.json", "tokenizer.json", "vocab.json"}));
  EXPECT_EQ(hf::sidecars_of(folder_ / "m", false).size(), 7u) << "a folder's are its own";
  EXPECT_TRUE(hf::sidecars_of(folder_ / "gone", false).empty());
  EXPECT_TRUE(hf::sidecars_of("bytes", true).empty());
  const std::string model = put("x.model", std::string("a")),
                    words = put("w.json", std::string("b"));
  EXPECT_EQ(names_of(hf::sidecars_of(model, true)), Names{"spiece.model"});
  EXPECT_EQ(names_of(hf::sidecars_of(model, false)), Names{"tokenizer.model"});
  const auto fast = hf::sidecars_of(words, true);
  EXPECT_EQ(names_of(fast), (Names{"tokenizer.json", "tokenizer_config.json"}));
  EXPECT_EQ(fast[0].source, words);
  EXPECT_EQ(Json::parse(fast[1].text), (Json{{"tokenizer_class", "PreTrainedTokenizerFast"}}));
}

TEST_F(Directory, HasATokenizerWhereTheContentsAreEqual) {
  const auto has = [&](const std::string& tokenizer) {
    return hf::has_tokenizer(folder_ / "m", tokenizer);
  };
  const std::string words = put("w.json", std::string("words")),
                    piece = put("p.model", std::string("piece"));
  put("m/config.json", std::string("{}"));
  EXPECT_FALSE(has(words));
  EXPECT_FALSE(has(folder_ / "gone.json"));
  put("m/tokenizer.json", std::string("other"));
  EXPECT_FALSE(has(words));
  put("m/tokenizer.json", std::string("words"));
  EXPECT_TRUE(has(words));
  EXPECT_FALSE(has(piece));
  put("m/spiece.model", std::string("piece"));
  EXPECT_TRUE(has(piece)) << "of a translator";
  fs::remove(folder_ / "m/spiece.model");
  put("m/tokenizer.model", std::string("piece"));
  EXPECT_TRUE(has(piece));
  fs::remove(folder_ / "m/tokenizer.model");
  put("m/p.model", std::string("piece"));
  EXPECT_TRUE(has(piece)) << "under its own name";
  put("n/vocab.json", std::string("v"));
  put("n/generation_config.json", std::string("g"));
  EXPECT_FALSE(has(folder_ / "n"));
  put("m/vocab.json", std::string("v"));
  EXPECT_TRUE(has(folder_ / "n")) << "other sidecars do not count";
  put("n/merges.txt", std::string("w"));
  EXPECT_FALSE(has(folder_ / "n"));
  put("e/generation_config.json", std::string("g"));
  EXPECT_FALSE(has(folder_ / "e")) << "there is none";
}

TEST_F(Directory, WithoutFilesOfItsOwnFollowsTheModelsGeneration) {
  const auto rules = [&](const Json& config, const Json& generation) {
    fs::remove(folder_ / "generation_config.json");
    if (!generation.is_null()) put("generation_config.json", generation);
    return hf::generation_rules(config, folder_.str());
  };
  using test::Ids;
  const Json config{{"eos_token_id", 6}, {"bos_token_id", 1}, {"decoder_start_token_id", 2}};
  EXPECT_EQ(rules(config, nullptr).end_ids, Ids{6});
  EXPECT_EQ(rules(config, nullptr).start_id, -1) << "the model's own";
  EXPECT_EQ(rules(config, nullptr).model_start, 2);
  EXPECT_EQ(rules(Json::object(), nullptr).model_start, -1);
  EXPECT_TRUE(rules(Json::object(), nullptr).end_ids.empty());
  EXPECT_EQ(rules(config, Json::object()).start_id, -1);
  EXPECT_EQ(rules(config, Json::object()).end_ids, Ids{6});
  EXPECT_EQ(rules(config, {{"bos_token_id", 5}}).start_id, 5);
  EXPECT_EQ(rules(config, {{"bos_token_id", 5}, {"decoder_start_token_id", 7}}).start_id, 7);
  EXPECT_EQ(rules(config, {{"bos_token_id", 5}, {"decoder_start_token_id", nullptr}}).start_id, 5);
  EXPECT_EQ(rules(config, {{"decoder_start_token_id", 7}}).model_start, 2);
  // Words of one token that do not end a text; longer ones are named.
  const auto words = rules(config, {{"bad_words_ids", {{3}, {6}, {4, 5}, 9}}});
  EXPECT_EQ(words.banned_ids, (Ids{3, 9}));
  EXPECT_EQ(words.others, std::vector<std::string>{"bad_words_ids"});
  EXPECT_TRUE(rules(config, {{"bad_words_ids", {{3}}}}).others.empty());
  // What is not obeyed, unless it asks for nothing.
  for (const auto& [key, nothing, something] :
       {std::tuple{"num_beams", Json(1), Json(4)},
        {"length_penalty", Json(1.0), Json(0.6)},
        {"repetition_penalty", Json(1), Json(1.2)},
        {"encoder_repetition_penalty", Json(1), Json(2)},
        {"num_beam_groups", Json(1), Json(2)},
        {"diversity_penalty", Json(0.0), Json(1)},
        {"no_repeat_ngram_size", Json(0), Json(3)},
        {"encoder_no_repeat_ngram_size", Json(0), Json(1)},
        {"min_length", Json(0), Json(1)},
        {"min_new_tokens", Json(0), Json(1)},
        {"guidance_scale", Json(1.0), Json(0)},
        {"exponential_decay_length_penalty", Json(), Json::array({1, 1.5})},
        {"forced_bos_token_id", Json(), Json(0)},
        {"forced_decoder_ids", Json::array(), Json::array({Json::array({1, 2})})},
        {"suppress_tokens", Json::array(), Json::array({1})},
        {"begin_suppress_tokens", Json(), Json::array({1})},
        {"sequence_bias", Json::array(), Json{{"a", 1}}},
        {"watermarking_config", Json(), Json{{"a", 1}}}}) {
    EXPECT_TRUE(rules(config, {{key, nothing}}).others.empty()) << key;
    EXPECT_TRUE(rules(config, {{key, nullptr}}).others.empty()) << key;
    EXPECT_EQ(rules(config, {{key, something}}).others, std::vector<std::string>{key});
    Json both = config;
    both[key] = something;
    EXPECT_EQ(rules(both, nullptr).others, std::vector<std::string>{key}) << "of config.json";
    EXPECT_TRUE(rules(both, Json::object()).others.empty()) << "its own file counts";
  }
  expect_error(ExitCode::input, {"/generation_config.json", "eos_token_id"}, [&] {
    rules(config, {{"eos_token_id", "x"}});
  });
  expect_error(ExitCode::input, {"/config.json", "eos_token_id"}, [&] {
    rules({{"eos_token_id", "x"}}, nullptr);
  });
}

// Ids that the model has changed are written; others of the file stay.
TEST_F(Directory, ExportsGiveGenerationTheIdsOfTheModel) {
  const Json original = hf::read_config(kModelFolders + "bart_0");
  const config::ModelConfig same = hf::HuggingFaceModel(kModelFolders + "bart_0").model();
  const auto updated = [&](const config::ModelConfig& m, const std::string& from, Json written,
                           const Json& generation) {
    put("config.json", written);
    put("generation_config.json", generation);
    hf::update_generation_config(folder_.str(), m, from);
    return json("generation_config.json");
  };
  const Json ids{{"bos_token_id", 11},
                 {"eos_token_id", 12},
                 {"pad_token_id", 13},
                 {"decoder_start_token_id", 14}},
      others{{"bos_token_id", 1},
             {"eos_token_id", 2},
             {"pad_token_id", 3},
             {"decoder_start_token_id", 4},
             {"max_length", 20}};
  EXPECT_EQ(updated(same, original.dump(), ids, others), others);
  config::ModelConfig moved = same;
  moved.decoder_start = same.decoder_start + 1;
  Json expected = others;
  expected["decoder_start_token_id"] = 14;
  EXPECT_EQ(updated(moved, original.dump(), ids, others), expected);
  moved.padding_idx = same.padding_idx + 1;
  expected["pad_token_id"] = 13;
  EXPECT_EQ(updated(moved, original.dump(), ids, others), expected);
  moved.decoder_start = same.decoder_start;
  expected["decoder_start_token_id"] = 4;
  EXPECT_EQ(updated(moved, original.dump(), ids, others), expected);
  // Without an original all of them, one that is null not at all; one of several stays.
  Json all = ids, some = others;
  all["max_length"] = 20;
  EXPECT_EQ(updated(same, "", ids, others), all);
  Json nothing = ids;
  nothing["bos_token_id"] = nullptr;
  all.erase("bos_token_id");
  EXPECT_EQ(updated(same, "", nothing, others), all);
  some["eos_token_id"] = {5, 12};
  all["eos_token_id"] = {5, 12};
  EXPECT_EQ(updated(same, "", nothing, some), all);
  some["eos_token_id"] = {5, 6};
  all["eos_token_id"] = 12;
  EXPECT_EQ(updated(same, "", nothing, some), all);
  EXPECT_EQ(updated(same, "", {{"vocab_size", 3}}, others), others) << "no id is known";
  fs::remove(folder_ / "generation_config.json");
  hf::update_generation_config(folder_.str(), same, "");
  EXPECT_FALSE(fs::exists(folder_ / "generation_config.json"));
}

TEST_F(Directory, OfASentenceEncoderNamesItsModules) {
  const auto module = [](const char* type, const char* path) {
    return Json{{"type", std::string("sentence_transformers.models.") + type}, {"path", path}};
  };
  const Json transformer = module("Transformer", ""), pooling = module("Pooling", "1_Pooling"),
             normalize = module("Normalize", "2_Normalize");
  const auto head = [&](const Json& modules, const Json& pools) {
    put("modules.json", modules);
    put("1_Pooling/config.json", pools);
    return *hf::sentence_head(folder_.str());
  };
  const auto refused = [&](const Json& modules, const Json& pools, const std::string& why) {
    expect_error(ExitCode::input, {why}, [&] { head(modules, pools); });
  };
  EXPECT_FALSE(hf::sentence_head(folder_.str()));
  const Json mean{{"pooling_mode_mean_tokens", true}},
      two = Json::array({transformer, pooling}),
      three = Json::array({transformer, pooling, normalize});
  EXPECT_FALSE(head(two, mean).normalize);
  EXPECT_TRUE(head(three, mean).normalize);
  EXPECT_EQ(head(two, mean).type, "embed");
  for (const auto& [flag, word, pool] :
       {std::tuple{"pooling_mode_cls_token", "cls", config::Pool::first},
        {"pooling_mode_mean_tokens", "mean", config::Pool::mean},
        {"pooling_mode_lasttoken", "lasttoken", config::Pool::last}}) {
    EXPECT_EQ(head(two, {{flag, true}}).pool, pool) << flag;
    EXPECT_EQ(head(two, {{"pooling_mode", word}}).pool, pool) << word;
    EXPECT_EQ(head(two, {{"pooling_mode", word}, {"pooling_mode_mean_tokens", true}}).pool, pool)
        << "the newer member counts";
  }
  refused(two, Json::object(), "this way of pooling");
  refused(two, {{"pooling_mode", "max"}}, "this way of pooling");
  refused(two, {{"pooling_mode_cls_token", true}, {"pooling_mode_mean_tokens", true}}, "a second");
  for (const char* other : {"pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens",
                            "pooling_mode_weightedmean_tokens"})
    refused(two, {{"pooling_mode_mean_tokens", true}, {other, true}}, other);
  refused(Json::array({transformer}), mean, "no module Pooling");
  refused(Json::array({transformer, normalize}), mean, "Normalize");
  refused(Json::array({pooling, transformer}), mean, "Pooling");
  refused(Json::array({transformer, pooling, module("Dense", "2_Dense")}), mean, "Dense");
  refused(Json::array({module("Transformer", "0_Transformer"), pooling}), mean, "0_Transformer");
  refused(Json::array({transformer, pooling, normalize, normalize}), mean, "Normalize");
  put("config_sentence_transformers.json", Json{{"default_prompt_name", nullptr}});
  EXPECT_NO_THROW(head(two, mean));
  put("config_sentence_transformers.json", Json{{"default_prompt_name", "query"}});
  refused(two, mean, "a prompt before every text");
}

TEST_F(Directory, OfASentenceEncoderIsReadAsItWasWritten) {
  config::ModelConfig m;
  m.d_model = 24, m.max_seq_len = 77;
  EXPECT_TRUE(hf::sentence_files(m).empty());
  for (const config::Pool pool : {config::Pool::first, config::Pool::mean, config::Pool::last})
    for (const bool normalize : {false, true}) {
      m.heads = {{.type = "embed", .labels = {}, .pool = pool, .normalize = normalize}};
      for (const hf::Sidecar& f : hf::sentence_files(m)) put(f.name, f.text);
      const config::HeadConfig read = *hf::sentence_head(folder_.str());
      EXPECT_EQ(read.pool, pool);
      EXPECT_EQ(read.normalize, normalize);
      EXPECT_EQ(hf::sentence_length(folder_.str()), 77);
      EXPECT_EQ(json("1_Pooling/config.json").at("word_embedding_dimension"), 24);
    }
}

TEST(ConfigMembers, HaveTheirDefaultsAndBounds) {
  const Json tree{{"n", 5},
                  {"null", nullptr},
                  {"x", 0.25},
                  {"yes", true},
                  {"word", "gelu"},
                  {"most", std::int64_t{1} << 31},
                  {"more", (std::int64_t{1} << 31) + 1},
                  {"minus", -1},
                  {"layers", 10000},
                  {"many", 10001}};
  const io::JsonNode c(tree, "config.json");
  EXPECT_EQ(hf::whole(c, "n", 7), 5);
  EXPECT_EQ(hf::whole(c, "gone", 7), 7);
  EXPECT_EQ(hf::whole(c, "null", 7), 7);
  EXPECT_EQ(hf::whole(c, "most"), std::int64_t{1} << 31);
  EXPECT_EQ(hf::layers(c, "layers", 3), 10000);
  for (const char* bad : {"gone", "null", "more", "minus", "x", "word"})
    expect_error(ExitCode::input, {bad}, [&] { hf::whole(c, bad); });
  expect_error(ExitCode::input, {"many"}, [&] { hf::layers(c, "many", 3); });
  EXPECT_TRUE(hf::has_member(c, "null"));
  EXPECT_FALSE(hf::has_member(c, "gone"));
  EXPECT_EQ(hf::real(c, "x", 1), 0.25);
  EXPECT_EQ(hf::real(c, "null", 1), 1);
  EXPECT_NO_THROW(hf::must_be(c, "yes", true));
  EXPECT_NO_THROW(hf::must_be(c, "gone", true));
  EXPECT_NO_THROW(hf::must_be(c, "gone", false));
  expect_error(ExitCode::input, {"yes", "expected false"}, [&] { hf::must_be(c, "yes", false); });
  EXPECT_NO_THROW(hf::must_say(c, "gone", "relu"));
  expect_error(ExitCode::input, {"word", "expected 'relu'"},
               [&] { hf::must_say(c, "word", "relu"); });
  const auto padding = [](const Json& id) {
    const Json given = id.is_string() ? Json::object() : Json{{"pad_token_id", id}};
    return hf::padding(io::JsonNode(given, "config.json"), 50, 3);
  };
  EXPECT_EQ(padding("absent"), 3);
  EXPECT_EQ(padding(nullptr), -1);
  EXPECT_EQ(padding(0), 0);
  EXPECT_EQ(padding(49), 49);
  EXPECT_EQ(padding(-1), 49);
  EXPECT_EQ(padding(-50), 0);
  EXPECT_THROW(padding(50), Error);
  EXPECT_THROW(padding(-51), Error);
}

TEST(ConfigMembers, NameActivations) {
  using enum config::Activation;
  const Json tree{{"act", "x"}};
  const io::JsonNode c(tree, "config.json");
  for (const auto& [name, plain, gated] : {std::tuple{"gelu_new", gelu_tanh, geglu},
                                           {"gelu_pytorch_tanh", gelu_tanh, geglu},
                                           {"gelu", gelu, geglu_exact},
                                           {"silu", silu, swiglu},
                                           {"swish", silu, swiglu}}) {
    EXPECT_EQ(hf::activation_of(c, "act", name, false), plain) << name;
    EXPECT_EQ(hf::activation_of(c, "act", name, true), gated) << name;
    for (const auto a : {plain, gated})
      EXPECT_EQ(hf::activation_name({{"act", name}}, "act", a), name) << "is kept";
  }
  EXPECT_EQ(hf::activation_of(c, "act", "relu", false), relu);
  expect_error(ExitCode::input, {"relu", "gated"},
               [&] { hf::activation_of(c, "act", "relu", true); });
  expect_error(ExitCode::input, {"tanh"}, [&] { hf::activation_of(c, "act", "tanh", false); });
  EXPECT_EQ(hf::activation_name(Json::object(), "act", gelu_tanh), "gelu_new");
  EXPECT_EQ(hf::activation_name({{"act", "relu"}}, "act", swiglu), "silu");
}

TEST(ConfigWindows, AreReadFromTheirMember) {
  const auto window = [](const Json& c) {
    return hf::window_in(io::JsonNode(c, "config.json"), 4096);
  };
  EXPECT_EQ(window(Json::object()), 4096);
  EXPECT_EQ(window({{"sliding_window", nullptr}}), 0);
  EXPECT_EQ(window({{"sliding_window", 1}}), 1);
  EXPECT_THROW(window({{"sliding_window", 0}}), Error);
  EXPECT_FALSE(hf::slides_after(27, 28));
  EXPECT_TRUE(hf::slides_after(28, 28));
}

// The sixteen values of OCP's E2M1 in its table, times a power of two; 32 share a scale.
TEST(Mxfp4, IsThatOfItsTable) {
  const float table[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  std::vector<std::byte> blocks, scales{std::byte{127}, std::byte{130}, std::byte{0}};
  for (int i = 0; i < 48; ++i)  // bytes of elements 2 i and 2 i + 1
    blocks.push_back(static_cast<std::byte>((2 * i) % 16 | ((2 * i + 1) % 16) << 4));
  for (const auto& [first, count] : {std::pair{0, 96}, {1, 95}, {31, 2}, {33, 7}, {64, 0}}) {
    std::vector<float> out(static_cast<std::size_t>(count) + 1, 77);
    hf::decode_mxfp4(blocks.data(), scales.data(), first, count, out.data());
    EXPECT_EQ(out.back(), 77) << "no further";
    for (int i = 0; i < count; ++i) {
      const int at = first + i;
      const float scale = at < 32 ? 1 : at < 64 ? 8 : std::ldexp(1.0F, -127);
      const float expected = table[at % 8] * (at % 16 < 8 ? 1.0F : -1.0F) * scale;
      EXPECT_EQ(out[static_cast<std::size_t>(i)], expected) << at;
      EXPECT_EQ(std::signbit(out[static_cast<std::size_t>(i)]), at % 16 >= 8) << at;
    }
  }
}

struct Stored {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};
using Tensors = std::map<std::string, Stored>;

Tensors tensors_in(const std::string& file) {
  const io::SafetensorsReader reader(file);
  Tensors all;
  for (const auto& [name, info] : reader.tensors()) {
    const auto bytes = reader.bytes(name);
    all[name] = {
        info.dtype, info.shape, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
  }
  return all;
}

void write_tensors(const std::string& file, const Tensors& all) {
  std::vector<io::TensorEntry> entries;
  for (const char* dtype : {"F32", "U8", ""})  // wider ones first
    for (const auto& [name, t] : all)
      if ((t.dtype == "F32") == (dtype == std::string("F32")) &&
          (t.dtype == "U8") == (dtype == std::string("U8")))
        entries.push_back({name, t.dtype, t.shape});
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    const auto width = [](const std::string& d) { return d == "F32" ? 4 : d == "U8" ? 1 : 2; };
    return width(a.dtype) > width(b.dtype);
  });
  io::SafetensorsWriter writer(file, entries);
  for (const io::TensorEntry& e : entries)
    writer.write(std::as_bytes(std::span(all.at(e.name).bytes)));
  writer.finish();
}

std::vector<float> part_of(const hf::HuggingFaceModel& model, const std::string& part) {
  std::vector<float> values(static_cast<std::size_t>(*model.elements(part)));
  model.read(part, {std::ssize(values), 1, 0, std::ssize(values), 0, 1}, values.data());
  return values;
}

// Of a model whose parts are vectors, or stored as they are.
TEST_F(Directory, WeightsComeBackInTheTypesOfTheOriginal) {
  const std::string dir = copy_of("llama_0"), out = folder_ / "out";
  Tensors tensors = tensors_in(dir + "/model.safetensors");
  const std::string norm = "model.norm.weight", first = "model.layers.0.input_layernorm.weight",
                    second = "model.layers.1.input_layernorm.weight";
  ASSERT_TRUE(tensors.contains(norm) && tensors.contains(first) && tensors.contains(second));
  const auto halves = [&](const std::string& name, const char* dtype, std::uint16_t bits) {
    Stored& t = tensors[name];
    const std::size_t n = t.bytes.size() / (t.dtype == "F32" ? 4 : 2);
    t.dtype = dtype, t.bytes.clear();
    for (std::size_t i = 0; i < n; ++i) {
      t.bytes += static_cast<char>(bits & 255);
      t.bytes += static_cast<char>(bits >> 8);
    }
  };
  halves(norm, "BF16", 0x3fc0);   // 1.5
  halves(first, "F16", 0x7bff);   // 65504, the largest
  halves(second, "F16", 0x7c00);  // infinity, which F32 has too
  write_tensors(dir + "/model.safetensors", tensors);
  const hf::HuggingFaceModel model(dir);
  const auto written = [&](float in_first) {
    fs::remove_all(out);
    hf::write_huggingface(out, model.model(), {}, model.provenance(), "", "bytes",
                          [&](const std::string& part) {
                            std::vector<float> values = part_of(model, part);
                            if (values[0] == 65504.0F) values.back() = in_first;
                            return values;
                          });
    return tensors_in(out + "/model.safetensors");
  };
  const auto expect_same = [&](const Tensors& found, const std::string& but) {
    EXPECT_EQ(found.size(), tensors.size());
    for (const auto& [name, t] : tensors) {
      if (name == but) continue;
      ASSERT_TRUE(found.contains(name)) << name;
      EXPECT_EQ(found.at(name).dtype, t.dtype) << name;
      EXPECT_EQ(found.at(name).shape, t.shape) << name;
      EXPECT_TRUE(found.at(name).bytes == t.bytes) << name;
    }
  };
  expect_same(written(65504), "");
  const Json config = json("out/config.json"), original = json("llama_0/config.json");
  for (const auto& [member, value] : original.items())
    EXPECT_EQ(config.at(member), value) << member;
  const Tensors rounds = written(65519);  // to the largest
  EXPECT_EQ(rounds.at(first).dtype, "F16");
  expect_same(rounds, "");
  testing::internal::CaptureStderr();
  const Tensors wide = written(65520);  // would be infinite
  EXPECT_NE(testing::internal::GetCapturedStderr().find("'" + first + "' has values beyond"),
            std::string::npos);
  EXPECT_EQ(wide.at(first).dtype, "F32");
  EXPECT_EQ(wide.at(first).bytes.size(), 2 * tensors.at(first).bytes.size());
  expect_same(wide, first);
  EXPECT_EQ(hf::original_type(model.provenance()), "llama");
  EXPECT_EQ(hf::original_type(""), "");
  EXPECT_EQ(hf::original_type("{}"), "");
}

TEST_F(Directory, ExportsRemoveOldWeightsAndKeepTheTokenizer) {
  const std::string dir = copy_of("llama_0"), out = folder_ / "out",
                    words = put("w.json", std::string("words"));
  put("llama_0/tokenizer.json", std::string("theirs"));
  put("llama_0/merges.txt", std::string("theirs"));
  put("llama_0/generation_config.json", std::string("{}"));
  const hf::HuggingFaceModel model(dir);
  const std::string provenance = model.provenance();
  const auto write = [&](const std::string& tokenizer, const std::string& beside = "") {
    hf::write_huggingface(out, model.model(), {}, provenance, beside, tokenizer,
                          [&](const std::string& part) { return part_of(model, part); });
  };
  write("bytes");
  EXPECT_EQ(test::get(out + "/tokenizer.json"), "theirs");
  EXPECT_TRUE(fs::exists(out + "/merges.txt") && fs::exists(out + "/generation_config.json"));
  fs::remove_all(out);
  put("out/model-00001-of-00002.safetensors", std::string("old"));
  put("out/model.safetensors.index.json", std::string("old"));
  put("out/notes.txt", std::string("mine"));
  put("out/merges.txt", std::string("old"));
  testing::internal::CaptureStderr();
  write(words);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("merges.txt was there before"),
            std::string::npos);
  EXPECT_EQ(test::get(out + "/tokenizer.json"), "words");
  EXPECT_TRUE(fs::exists(out + "/generation_config.json") && fs::exists(out + "/notes.txt"));
  EXPECT_FALSE(fs::exists(out + "/model-00001-of-00002.safetensors"));
  EXPECT_FALSE(fs::exists(out + "/model.safetensors.index.json"));
  EXPECT_NO_THROW(hf::HuggingFaceModel{out});
  // The tokenizer of the original where the run's is gone; of the folder beside where that is.
  const auto told = [&](const std::string& tokenizer, const std::string& beside) {
    fs::remove_all(out);
    testing::internal::CaptureStderr();
    write(tokenizer, beside);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(told(folder_ / "gone.json", "").find("the export has that of " + dir),
            std::string::npos);
  EXPECT_EQ(test::get(out + "/tokenizer.json"), "theirs");
  fs::rename(dir, folder_ / "moved");
  EXPECT_NE(told(folder_ / "gone.json", "").find("; the export has none"), std::string::npos);
  put("beside/tokenizer.json", std::string("beside"));
  EXPECT_EQ(told("bytes", folder_ / "beside"), "");
  EXPECT_EQ(test::get(out + "/tokenizer.json"), "beside");
}

TEST_F(Directory, WeightsThatDoNotFitAreNamed) {
  const auto with = [&](const std::function<void(Tensors&)>& change) {
    const std::string dir = copy_of("llama_0");
    Tensors t = tensors_in(dir + "/model.safetensors");
    change(t);
    write_tensors(dir + "/model.safetensors", t);
    return [dir] { hf::HuggingFaceModel{dir}; };
  };
  const std::string name = "model.norm.weight";
  EXPECT_NO_THROW(with([](Tensors&) {})());
  expect_error(ExitCode::input, {"'" + name + "' is missing; expected shape ("},
               with([&](Tensors& t) { t.erase(name); }));
  expect_error(ExitCode::input, {name, " is (2, ", "; expected ("}, with([&](Tensors& t) {
                 t[name].shape = {2, t[name].shape[0] / 2};
               }));
  expect_error(ExitCode::input, {name, "has type U8; expected F32, F16 or BF16"},
               with([&](Tensors& t) {
                 t[name].bytes.resize(t[name].bytes.size() / 4);
                 t[name].dtype = "U8";
               }));
  expect_error(ExitCode::input, {"'more.weight' is unknown"},
               with([&](Tensors& t) { t["more.weight"] = t[name]; }));
  for (const char* prefix : {"module.", "_orig_mod."})
    expect_error(ExitCode::input, {"begin with '" + std::string(prefix) + "'"},
                 with([&](Tensors& t) {
                   Tensors wrapped;
                   for (const auto& [tensor, stored] : t) wrapped[prefix + tensor] = stored;
                   t = wrapped;
                 }));
}

TEST_F(Directory, ShardsAreFilesOfTheDirectory) {
  const std::string dir = copy_of("llama_0"), index = "llama_0/model.safetensors.index.json";
  const Tensors all = tensors_in(dir + "/model.safetensors");
  Tensors one, two;
  Json map;
  for (const auto& [name, t] : all) {
    const bool first = one.size() <= two.size();
    (first ? one : two)[name] = t;
    map[name] = first ? "a.safetensors" : "b.safetensors";
  }
  write_tensors(dir + "/a.safetensors", one);
  write_tensors(dir + "/b.safetensors", two);
  put(index, Json{{"weight_map", map}});
  EXPECT_NO_THROW(hf::HuggingFaceModel{dir}) << "one file counts where it is there";
  fs::remove(dir + "/model.safetensors");
  const hf::HuggingFaceModel model(dir), whole(kModelFolders + "llama_0");
  for (const std::string& part : whole.parts())
    EXPECT_EQ(part_of(model, part), part_of(whole, part)) << part;
  const std::string name = one.begin()->first;
  for (const char* bad :
       {"", ".hidden", "../a.safetensors", "c/a.safetensors", "c\\a.safetensors"}) {
    Json other = map;
    other[name] = bad;
    put(index, Json{{"weight_map", other}});
    expect_error(ExitCode::input, {"is not a file name"}, [&] { hf::HuggingFaceModel{dir}; });
  }
  Json more = map;
  more["more.weight"] = "b.safetensors";
  put(index, Json{{"weight_map", more}});
  expect_error(ExitCode::input, {"'more.weight' is missing from the shards"},
               [&] { hf::HuggingFaceModel{dir}; });
  two[name] = one[name];
  write_tensors(dir + "/b.safetensors", two);
  put(index, Json{{"weight_map", map}});
  expect_error(ExitCode::input, {"'" + name + "' is stored twice"},
               [&] { hf::HuggingFaceModel{dir}; });
  fs::remove(dir + "/model.safetensors.index.json");
  for (const char* pickle : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    put(std::string("llama_0/") + pickle, std::string("x"));
    expect_error(ExitCode::input, {std::string("has ") + pickle, "model.safetensors"},
                 [&] { hf::HuggingFaceModel{dir}; });
    fs::remove(dir + "/" + pickle);
  }
}

// A config.json may name the file; another than the one that is there is refused.
TEST_F(Directory, NamesItsWeightsFile) {
  const std::string dir = copy_of("llama_0");
  Json config = json("llama_0/config.json");
  const auto named = [&](const Json& file) {
    config["transformers_weights"] = file;
    put("llama_0/config.json", config);
    return [dir] { hf::HuggingFaceModel{dir}; };
  };
  EXPECT_NO_THROW(named("model.safetensors")());
  expect_error(ExitCode::input, {"transformers_weights", "expected 'model.safetensors'"},
               named("model.safetensors.index.json"));
}

// Slices of rows and columns, as ranks read them, of transposed and of stacked tensors.
TEST_F(Directory, RangesOfAPartAreThoseOfTheWhole) {
  for (const char* name : {"gpt2_0", "llama_0", "phi3_0", "gpt_oss_0", "qwen3_next_0", "bamba_0"}) {
    const hf::HuggingFaceModel model(kModelFolders + name);
    int matrices = 0;
    for (const hf::ExchangedTensor& t : model.architecture().exchanged(model.model()))
      for (std::size_t i = 0; i < t.parts.size(); ++i) {
        const auto elements = model.elements(t.parts[i]);
        const std::int64_t cols = t.cols();
        if (!elements || cols <= 1 || *elements / cols < 4) continue;
        const std::int64_t rows = *elements / cols;
        ++matrices;
        std::vector<float> whole(static_cast<std::size_t>(*elements));
        model.read(t.parts[i], {rows, cols, 0, rows, 0, cols}, whole.data());
        for (const hf::PartRange& r : {hf::PartRange{rows, cols, 1, rows - 1, 0, cols},
                                       {rows, cols, 0, rows, 1, cols},
                                       {rows, cols, 2, 3, cols / 2, cols},
                                       {rows, cols, rows / 2, rows, 0, cols - 1}}) {
          std::vector<float> some(static_cast<std::size_t>(r.elements())), expected;
          model.read(t.parts[i], r, some.data());
          for (std::int64_t row = r.first_row; row < r.last_row; ++row)
            for (std::int64_t c = r.first_col; c < r.last_col; ++c)
              expected.push_back(whole[static_cast<std::size_t>(row * cols + c)]);
          EXPECT_EQ(some, expected) << name << " " << t.parts[i];
        }
      }
    EXPECT_GT(matrices, 5) << name;
  }
}

// Every tensor is composed of the parts that were read from it.
TEST(Directories, AreComposedOfTheirParts) {
  for (const char* name : {"gpt2_0", "llama_0", "phi3_0", "qwen3_next_0", "bamba_0", "mixtral_0",
                           "bert_0", "t5_0", "modernbert_0"}) {
    const hf::HuggingFaceModel model(kModelFolders + name);
    const io::SafetensorsReader file(kModelFolders + name + "/model.safetensors");
    std::map<std::string, std::int64_t> cols;
    int compared = 0;
    for (const hf::ExchangedTensor& t : model.architecture().exchanged(model.model())) {
      const std::string stored = model.architecture().written_name(model.model(), t.name);
      if (!file.has(stored) || file.info(stored).dtype != "F32") continue;
      const auto whole = hf::compose(t, [&](const std::string& part) {
        const std::int64_t n = *model.elements(part), width = t.cols();
        std::vector<float> values(static_cast<std::size_t>(n));
        model.read(part, {n / width, width, 0, n / width, 0, width}, values.data());
        return values;
      });
      EXPECT_EQ(whole, file.read<float>(stored)) << name << " " << t.name;
      ++compared;
    }
    EXPECT_GT(compared, 10) << name;
  }
}

// A copy of a tied table is one, and is written again; so are buffers, which nothing reads.
TEST_F(Directory, KeepsCopiesAndBuffers) {
  const std::string wte = "transformer.wte.weight", head = "lm_head.weight",
                    buffer = "transformer.h.0.attn.bias";
  const std::string dir = copy_of("gpt2_2"), out = folder_ / "out", kept = folder_ / "kept";
  const Tensors plain = tensors_in(dir + "/model.safetensors");
  ASSERT_TRUE(plain.contains(wte) && !plain.contains(head));
  const auto with = [&](const std::function<void(Tensors&)>& change) {
    Tensors t = plain;
    change(t);
    write_tensors(dir + "/model.safetensors", t);
    return std::make_unique<hf::HuggingFaceModel>(dir);
  };
  const auto write = [&](const hf::HuggingFaceModel& model, const std::string& provenance) {
    fs::remove_all(out);
    hf::write_huggingface(out, model.model(), {}, provenance, "", "bytes",
                          [&](const std::string& part) { return part_of(model, part); });
    return tensors_in(out + "/model.safetensors");
  };
  EXPECT_FALSE(write(*with([](Tensors&) {}), "{}").contains(head));
  const auto copy = with([&](Tensors& t) { t[head] = t[wte]; });
  EXPECT_NO_THROW(copy->check_copies());
  EXPECT_TRUE(write(*copy, copy->provenance()).at(head).bytes == plain.at(wte).bytes);
  const auto other = with([&](Tensors& t) {
    t[head] = t[wte];
    t[head].bytes[5] = static_cast<char>(t[head].bytes[5] ^ 1);
  });
  expect_error(ExitCode::input, {"'" + head + "' differs from '" + wte + "'"},
               [&] { other->check_copies(); });
  expect_error(ExitCode::input, {"'" + head + "' differs from '" + wte + "'"}, [&] {
    with([&](Tensors& t) {
      const std::size_t row = t[wte].bytes.size() / static_cast<std::size_t>(t[wte].shape[0]);
      t[head] = t[wte];
      t[head].shape[0] -= 1;
      t[head].bytes.resize(t[head].bytes.size() - row);
    });
  });
  // Under the other name alone it is the table.
  const auto renamed = with([&](Tensors& t) { t[head] = t[wte], t.erase(wte); });
  EXPECT_EQ(part_of(*renamed, "embedding.weight"), part_of(*copy, "embedding.weight"));
  // Of a buffer a checksum is kept, and with it the buffer where it is found unchanged.
  const auto buffered = with([&](Tensors& t) { t[buffer] = {"U8", {1, 1, 2, 2}, "abcd"}; });
  const std::string provenance = buffered->provenance(kept);
  const Json tree = Json::parse(provenance);
  EXPECT_EQ(tree.at("unused").size(), 1U);
  EXPECT_EQ(tree.at("unused").at(buffer),
            io::Checksum::of(std::as_bytes(std::span(std::string_view("abcd")))));
  EXPECT_EQ(tree.at("directory"), fs::absolute(kept).string());
  EXPECT_EQ(tree.at("dtypes").at(buffer), "U8");
  buffered->keep_sidecars(kept);
  EXPECT_EQ(tensors_in(kept + "/unused.safetensors").at(buffer).bytes, "abcd");
  const Tensors again = write(*buffered, provenance);
  EXPECT_EQ(again.at(buffer).bytes, "abcd");
  EXPECT_EQ(again.at(buffer).dtype, "U8");
  EXPECT_EQ(again.size(), plain.size() + 1);
  write_tensors(kept + "/unused.safetensors", {{buffer, {"U8", {1, 1, 2, 2}, "abce"}}});
  testing::internal::CaptureStderr();
  EXPECT_FALSE(write(*buffered, provenance).contains(buffer));
  EXPECT_NE(testing::internal::GetCapturedStderr().find("unused tensor '" + buffer + "'"),
            std::string::npos);
}

// A stored table of positions is that of the paper, sines before cosines, but for its rounding.
TEST_F(Directory, TablesOfPositionsAreComputed) {
  const std::string dir = copy_of("marian_0"), table = "model.encoder.embed_positions.weight";
  const Tensors plain = tensors_in(dir + "/model.safetensors");
  const std::int64_t length = json("marian_0/config.json").at("max_position_embeddings"),
                     width = json("marian_0/config.json").at("d_model");
  const auto check = [&](const std::string& dtype, double off) {
    Tensors t = plain;
    Stored& s = t[table] = {dtype, {length, width}, ""};
    for (std::int64_t at = 0; at < length * width; ++at) {
      const std::int64_t row = at / width, k = at % width, half = width / 2;
      const double angle =
          static_cast<double>(row) /
          std::pow(10000.0, 2.0 * static_cast<double>(k % half) / static_cast<double>(width));
      const auto value =
          static_cast<float>((k < half ? std::sin(angle) : std::cos(angle)) + (row == 1) * off);
      const auto add = [&](auto v) { s.bytes.append(reinterpret_cast<const char*>(&v), sizeof v); };
      dtype == "F32" ? add(value) : dtype == "F16" ? add(f16(value)) : add(bf16(value));
    }
    write_tensors(dir + "/model.safetensors", t);
    hf::HuggingFaceModel(dir).check_copies();
  };
  for (const auto& [dtype, most] : {std::pair{"F32", 1e-5}, {"F16", 2e-3}, {"BF16", 2e-2}}) {
    EXPECT_NO_THROW(check(dtype, 0)) << dtype;
    expect_error(ExitCode::input, {table, "at [1, ", "expected the sinusoidal position"},
                 [&] { check(dtype, most); });
  }
}

TEST(Directories, OfVectorsHaveNoTensorsOfAHead) {
  for (const char* name : {"bert_0", "gpt2_1", "modernbert_0", "llama_0", "distilbert_0"}) {
    const hf::HuggingFaceModel model(kModelFolders + name);
    const auto heads = [&](const config::ModelConfig& m) {
      return std::ranges::count_if(model.architecture().exchanged(m), [](const auto& t) {
        return t.parts.front().starts_with("head.");
      });
    };
    config::ModelConfig m = model.model();
    m.heads = {{.type = "embed", .labels = {}}};
    EXPECT_EQ(heads(m), 0) << name;
  }
}

TEST(ExchangedTensors, PlaceTheRowsOfTheirParts) {
  // Three parts of 2, 4 and 2 rows of 5 columns.
  const hf::ExchangedTensor uneven{
      .name = "a", .shape = {8, 5}, .parts = {"q", "k", "v"}, .rows = {2, 4, 2}};
  EXPECT_EQ(uneven.elements(), 40);
  EXPECT_EQ(uneven.elements(0, 1), 10);
  EXPECT_EQ(uneven.elements(1, 3), 30);
  EXPECT_EQ(uneven.cols(), 5);
  EXPECT_EQ(uneven.stack_row(1, 3, 5), 5);
  EXPECT_EQ(uneven.stack_row(2, 0, 5), 6);
  EXPECT_EQ(uneven.group_start(2), 0);
  // Two groups of a gate and an up of two rows, which take turns.
  const hf::ExchangedTensor turns{.name = "b",
                                  .shape = {2, 4, 3},
                                  .parts = {"g0", "u0", "g1", "u1"},
                                  .groups = 2,
                                  .turns = {1, 1}};
  EXPECT_EQ(turns.elements(0, 1), 6);
  EXPECT_EQ(turns.elements(1, 4), 18);
  EXPECT_EQ(turns.cols(), 3);
  EXPECT_EQ(turns.group_start(1), 0);
  EXPECT_EQ(turns.group_start(2), 12);
  EXPECT_EQ(turns.stack_row(0, 1, 3), 2);
  EXPECT_EQ(turns.stack_row(3, 1, 3), 3);
  // Side by side, of a transposed tensor.
  const hf::ExchangedTensor conv{
      .name = "c", .shape = {5, 12}, .parts = {"q", "k", "v"}, .transposed = true};
  EXPECT_EQ(conv.cols(), 5);
  EXPECT_EQ(conv.stack_rows(5), 12);
  EXPECT_EQ(conv.stack_row(2, 1, 5), 9);
  EXPECT_EQ((hf::ExchangedTensor{.name = "d", .shape = {6}, .parts = {"n"}}.cols()), 1);
}

}  // namespace
}  // namespace tfm
