// Published model shapes.
#include "train/config_fields.h"

namespace tfm {
namespace {

struct Size {
  std::int64_t vocab_size, d_model, n_layers, n_heads, n_kv_heads, d_ff, max_seq_len;
};

ModelConfig gpt2(Size s) {  // Radford et al., "Language models are unsupervised multitask learners", 2019
  ModelConfig m;
  m.vocab_size = s.vocab_size;
  m.d_model = s.d_model;
  m.n_layers = s.n_layers;
  m.n_heads = s.n_heads;
  m.n_kv_heads = s.n_kv_heads;
  m.d_ff = s.d_ff;
  m.max_seq_len = s.max_seq_len;
  m.dropout = {0.1, 0.1, 0.1, 0.1};
  return m;
}

ModelConfig llama(Size s, double scaling, bool tied) {  // Grattafiori et al., "The Llama 3 herd of models", 2024
  ModelConfig m = gpt2(s);
  m.position = "rope";
  m.rope = {500000.0, {scaling, 1, 4, 8192}};
  m.norm = "rmsnorm";
  m.activation = "swiglu";
  m.bias = false;
  m.tie_embeddings = tied ? "true" : "false";
  m.dropout = {};
  return m;
}

ModelConfig nanogpt_cpu() {
  ModelConfig m = gpt2({256, 128, 4, 4, 0, 0, 64});
  m.activation = "gelu";
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
      {"nanogpt-cpu", nanogpt_cpu()},
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
  model.family = "decoder";
  model.preset = name;
}

}  // namespace tfm
