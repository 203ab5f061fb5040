// Published model shapes.
#include "config/fields.h"

namespace tfm::config {
namespace {

struct Size {
  std::int64_t vocab_size, d_model, n_layers, n_heads, n_kv_heads, d_ff, max_seq_len;
};

ModelConfig model(Family family, Size s) {
  ModelConfig m;
  m.family = family;
  m.vocab_size = s.vocab_size;
  m.d_model = s.d_model;
  m.n_layers = s.n_layers;
  m.n_heads = s.n_heads;
  m.n_kv_heads = s.n_kv_heads;
  m.d_ff = s.d_ff;
  m.max_seq_len = s.max_seq_len;
  return m;
}

ModelConfig bert(std::int64_t d_model, std::int64_t layers,
                 std::int64_t heads) {  // Devlin et al., "BERT", 2019; uncased
  ModelConfig m = model(Family::encoder, {30522, d_model, layers, heads, 0, 0, 512});
  m.norm_position = NormPosition::post;
  m.norm_eps = 1e-12;
  m.activation = Activation::gelu;
  m.embedding_norm = m.head_transform = true;
  m.type_vocab_size = 2;
  m.head_bias = HeadBias::yes;
  m.padding_idx = 0;
  m.dropout = {0.1, 0.1, 0.1, 0};
  return m;
}

ModelConfig transformer(std::int64_t d_model, std::int64_t heads,
                        double dropout) {  // Vaswani et al., "Attention is all you need", 2017
  ModelConfig m = model(Family::encoder_decoder, {37000, d_model, 6, heads, 0, 0, 1024});
  m.position = Position::sinusoidal;
  m.sinusoid = Sinusoid::halves;
  m.norm_position = NormPosition::post;
  m.activation = Activation::relu;
  m.scale_embeddings = ScaleEmbeddings::yes;
  m.dropout = {dropout, 0, dropout, 0};
  return m;
}

ModelConfig t5(Size s, bool gated) {  // Raffel et al., "Exploring the limits of transfer learning",
                                      // 2020; gated: version 1.1
  ModelConfig m = model(Family::encoder_decoder, s);
  m.d_head = 64;
  m.position = Position::relative;
  m.norm = Norm::rmsnorm;
  m.norm_eps = 1e-6;
  m.activation = gated ? Activation::geglu : Activation::relu;
  m.bias = m.scale_attention = false;
  m.tie_embeddings = gated ? TieEmbeddings::inputs : TieEmbeddings::all;
  m.scale_logits = !gated;
  m.decoder_start = 0;
  m.dropout = {0.1, 0.1, 0.1, 0.1, 0.1};
  return m;
}

ModelConfig bart_base() {  // Lewis et al., "BART", 2020
  ModelConfig m = model(Family::encoder_decoder, {50265, 768, 6, 12, 0, 0, 1024});
  m.position_offset = 2;
  m.norm_position = NormPosition::post;
  m.activation = Activation::gelu;
  m.embedding_norm = true;
  m.padding_idx = 1;
  m.decoder_start = 2;
  m.dropout = {0.1, 0.1, 0.1, 0.1};
  return m;
}

ModelConfig gpt2(
    Size s) {  // Radford et al., "Language models are unsupervised multitask learners", 2019
  ModelConfig m = model(Family::decoder, s);
  m.dropout = {0.1, 0.1, 0.1, 0};
  return m;
}

ModelConfig llama(Size s, double scaling,
                  bool tied) {  // Grattafiori et al., "The Llama 3 herd of models", 2024
  ModelConfig m = gpt2(s);
  m.position = Position::rope;
  m.rope = {500000.0, {scaling, 1, 4, 8192}};
  m.norm = Norm::rmsnorm;
  m.activation = Activation::swiglu;
  m.bias = false;
  m.tie_embeddings = tied ? TieEmbeddings::yes : TieEmbeddings::no;
  m.dropout = {};
  return m;
}

// Gemma Team, "Gemma 2", 2024
ModelConfig gemma2(Size s, std::int64_t d_head, std::int64_t query_scalar) {
  ModelConfig m = model(Family::decoder, s);
  m.d_head = d_head;
  m.attention = {.softcap = 50, .query_scalar = query_scalar};
  m.position = Position::rope;
  m.activation = Activation::geglu;
  m.norm = Norm::rmsnorm;
  m.norm_position = NormPosition::both;
  m.norm_eps = 1e-6;
  m.norm_plus_one = true;
  m.bias = false;
  m.scale_embeddings = ScaleEmbeddings::rounded;
  m.padding_idx = 0;
  m.softcap = 30;
  m.layers = {"local", "global"};
  m.layer_kinds = {{"local", m}, {"global", m}};
  m.layer_kinds[0].layer.attention.window = 4096;
  return m;
}

ModelConfig nanogpt_cpu() {
  ModelConfig m = gpt2({256, 128, 4, 4, 0, 0, 64});
  m.activation = Activation::gelu;
  m.bias = false;
  m.dropout = {};
  return m;
}

// n_kv_heads and d_ff are 0 where they follow from the other sizes.
const std::map<std::string_view, ModelConfig>& presets() {
  static const std::map<std::string_view, ModelConfig> all = {
      {"gpt2-124m", gpt2({50257, 768, 12, 12, 0, 0, 1024})},
      {"gpt2-350m", gpt2({50257, 1024, 24, 16, 0, 0, 1024})},
      {"gpt2-774m", gpt2({50257, 1280, 36, 20, 0, 0, 1024})},
      {"gpt2-1.5b", gpt2({50257, 1600, 48, 25, 0, 0, 1024})},
      {"llama-1b", llama({128256, 2048, 16, 32, 8, 8192, 131072}, 32, true)},
      {"llama-8b", llama({128256, 4096, 32, 32, 8, 14336, 131072}, 8, false)},
      {"gemma2-2b", gemma2({256000, 2304, 26, 8, 4, 9216, 8192}, 256, 256)},
      {"nanogpt-cpu", nanogpt_cpu()},
      {"bert-base", bert(768, 12, 12)},
      {"bert-large", bert(1024, 24, 16)},
      {"transformer-base", transformer(512, 8, 0.1)},
      {"transformer-big", transformer(1024, 16, 0.3)},
      {"t5-small", t5({32128, 512, 6, 8, 0, 2048, 512}, false)},
      {"t5-base", t5({32128, 768, 12, 12, 0, 3072, 512}, false)},
      {"t5-v1.1-base", t5({32128, 768, 12, 12, 0, 2048, 512}, true)},
      {"bart-base", bart_base()},
  };
  return all;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const auto& [name, model] : presets()) names.emplace_back(name);
  return names;
}

void apply_preset(ModelConfig& model, std::string_view name) {
  const auto found = presets().find(name);
  if (found == presets().end()) return;
  model = found->second;
  model.preset = name;
}

}  // namespace tfm::config
