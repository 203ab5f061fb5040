// Presets against what was published: tests/fixtures/published/NAME.json holds the members of the
// config.json beside the published weights that describe the model, as transformers reads them. The
// files were transcribed by hand; no script fetches them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "huggingface/config.h"
#include "models/registry.h"
#include "support/config_fixture.h"

namespace tfm {
namespace {

config::Config preset(const std::string& name) {
  config::Config c;
  config::apply_preset(c.model, name);
  c.train.seq_len = 64;
  config::fill_derived(c);
  return c;
}

std::int64_t parameters(const config::Config& c) {
  return models::make_model(c, comm::single_mesh())->parameters().total_elements();
}

// One spelling of each model: what is automatic is said, and a number of layers is that of a stack.
std::string text(config::ModelConfig m) {
  m.preset.clear();
  m.qkv_bias = m.has_qkv_bias() ? config::Switch::yes : config::Switch::no;
  m.head_bias = m.has_head_bias() ? config::HeadBias::yes : config::HeadBias::no;
  if (m.translates()) m.n_layers = 0;
  config::Config c;
  c.model = m;
  const std::string all = config::dump_config(c);
  return all.substr(0, all.find("\nparallel:"));
}

struct Published {
  const char* preset;
  std::set<std::string> tensors;  // of those that need not be there, which are
  std::int64_t parameters;
};

const std::vector<Published> kPublished{
    {"gpt2-124m", {}, 124439808},
    {"gpt2-350m", {}, 354823168},
    {"gpt2-774m", {}, 774030080},
    {"gpt2-1.5b", {}, 1557611200},
    {"llama-1b", {}, 1235814400},
    {"llama-8b", {"lm_head.weight"}, 8030261248},
    {"gemma2-2b", {}, 2614341888},
    {"bert-base", {}, 109514298},
    {"bert-large", {}, 335174458},
    {"t5-small", {}, 60506624},
    {"t5-base", {}, 222903552},
    {"t5-v1.1-base", {"lm_head.weight", "shared.weight"}, 247577856},
    {"bart-base", {"model.shared.weight"}, 139420416},
};

TEST(Presets, EqualThePublishedConfigurations) {
  for (const Published& p : kPublished) {
    const std::string path =
        std::string(TFM_SOURCE_DIR) + "/tests/fixtures/published/" + p.preset + ".json";
    const auto json = nlohmann::json::parse(slurp(path));
    const config::ModelConfig published =
        huggingface::model_of(io::JsonNode(json, path),
                              [&](const std::string& name) { return p.tensors.contains(name); });
    const config::Config c = preset(p.preset);
    EXPECT_EQ(text(c.model), text(published)) << p.preset;
    EXPECT_EQ(parameters(c), p.parameters) << p.preset;
  }
}

// Vaswani et al., table 3: N, d_model, d_ff, h, d_k, dropout and millions of parameters; a
// vocabulary of about 37,000, one matrix for both embeddings and the output.
TEST(Presets, TransformersAreThoseOfThePaper) {
  struct Row {
    const char* preset;
    std::int64_t layers, d_model, d_ff, heads, d_k;
    double dropout, millions;
    std::int64_t exactly;
  };
  for (const Row& row : {Row{"transformer-base", 6, 512, 2048, 8, 64, 0.1, 65, 63082496},
                         Row{"transformer-big", 6, 1024, 4096, 16, 64, 0.3, 213, 214245376}}) {
    const config::Config c = preset(row.preset);
    const config::ModelConfig& m = c.model;
    SCOPED_TRACE(row.preset);
    EXPECT_EQ(m.family, config::Family::encoder_decoder);
    EXPECT_EQ(m.n_encoder_layers, row.layers);
    EXPECT_EQ(m.n_decoder_layers, row.layers);
    EXPECT_EQ(m.d_model, row.d_model);
    EXPECT_EQ(m.d_ff, row.d_ff);
    EXPECT_EQ(m.n_heads, row.heads);
    EXPECT_EQ(m.n_kv_heads, row.heads);
    EXPECT_EQ(m.d_head, row.d_k);
    EXPECT_EQ(m.dropout, (config::DropoutConfig{row.dropout, 0, row.dropout, 0}));
    EXPECT_EQ(m.vocab_size, 37000);
    EXPECT_EQ(m.tie_embeddings, config::TieEmbeddings::all);
    EXPECT_EQ(m.scale_embeddings, config::ScaleEmbeddings::yes);
    EXPECT_EQ(m.position, config::Position::sinusoidal);
    EXPECT_EQ(m.norm, config::Norm::layernorm);
    EXPECT_EQ(m.norm_position, config::NormPosition::post);
    EXPECT_EQ(m.activation, config::Activation::relu);
    EXPECT_EQ(parameters(c), row.exactly);
    EXPECT_NEAR(static_cast<double>(row.exactly) / 1e6, row.millions, 0.03 * row.millions);
  }
}

// config/train_shakespeare_char.py of nanoGPT, as its README shrinks it for a CPU; over bytes.
TEST(Presets, NanoGptIsThatOfItsReadme) {
  const config::ModelConfig m = preset("nanogpt-cpu").model;
  EXPECT_EQ(m.family, config::Family::decoder);
  EXPECT_EQ(m.vocab_size, 256);
  EXPECT_EQ(m.n_layers, 4);
  EXPECT_EQ(m.n_heads, 4);
  EXPECT_EQ(m.d_model, 128);
  EXPECT_EQ(m.d_ff, 512);
  EXPECT_EQ(m.max_seq_len, 64);
  EXPECT_EQ(m.activation, config::Activation::gelu);
  EXPECT_EQ(m.norm_eps, 1e-5);
  EXPECT_FALSE(m.bias);
  EXPECT_TRUE(m.tied_head());
  EXPECT_EQ(m.dropout, config::DropoutConfig{});
}

TEST(Presets, BertMayPredictTheNextSentence) {
  config::Config c = preset("bert-base");
  c.model.set_next_sentence(true);
  EXPECT_EQ(parameters(c), 110106428);  // BertForPreTraining
}

TEST(Presets, EachIsCompared) {
  std::set<std::string> compared{"transformer-base", "transformer-big", "nanogpt-cpu"};
  for (const Published& p : kPublished) compared.insert(p.preset);
  for (const std::string& name : config::preset_names())
    EXPECT_TRUE(compared.contains(name)) << name;
}

}  // namespace
}  // namespace tfm
