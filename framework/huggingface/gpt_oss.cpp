// gpt-oss (OpenAI 2025): experts with clamped gates and biases, sinks of attention, windows in
// every second layer. Weights of experts may be MXFP4 (Open Compute Project, "OCP Microscaling
// Formats", 1.0), as which they are read and not written.
#include <nlohmann/json.hpp>

#include "huggingface/llama_like.h"
#include "huggingface/windows.h"

namespace tfm::huggingface {
namespace {

bool every_second(std::int64_t layer, std::int64_t) { return layer % 2 == 0; }
constexpr Sliding kSliding{.slides = every_second, .if_used = false, .window = 128};

config::ModelConfig read(const io::JsonNode& c) {
  for (const auto& [key, value, text] :
       {std::tuple{"swiglu_alpha", 1.702, "1.702"}, {"swiglu_limit", 7.0, "7"}})
    if (real(c, key, value) != value)
      c.at(key).fail(std::string("other clamped gates are not supported; expected ") + text);
  config::ModelConfig m = llama_like::read(c, {.vocab_size = 201088,
                                               .kv_heads = 8,
                                               .d_ff = 2880,
                                               .max_seq_len = 131072,
                                               .head_dim = 64,
                                               .d_model = 2880,
                                               .layers = 36,
                                               .heads = 64,
                                               .theta = 150000});
  if (!has_member(c, "rms_norm_eps")) m.norm_eps = 1e-5;
  if (!c.find("rope_parameters") && !c.find("rope_scaling"))
    m.rope.scaling = {.factor = 32,
                      .original_max_seq_len = 4096,
                      .type = config::RopeScalingType::yarn,
                      .truncate = false};
  m.activation = config::Activation::clamped_swiglu;
  m.bias = c.flag("attention_bias", true), m.ffn_bias = config::Switch::yes;
  m.attention.sinks = true;
  llama_like::read_experts(m, c, has_member(c, "num_experts") ? "num_experts" : "num_local_experts",
                           128, 4);
  m.experts.d_ff = m.d_ff;
  m.experts.router_bias = true;
  read_windows(m, c, kSliding);
  return m;
}

void write(Json& j, const config::ModelConfig& m) {
  config::ModelConfig named = m;
  named.d_ff = m.experts.d_ff;
  named.activation = config::Activation::swiglu;
  llama_like::write(j, named);
  llama_like::write_experts(j, m, contains(j, "num_experts") ? "num_experts" : "num_local_experts");
  set(j, {{"attention_bias", m.bias}, {"swiglu_alpha", 1.702}, {"swiglu_limit", 7.0}});
  write_windows(j, m, kSliding);
  j.erase("quantization_config");
}

Needs needs(const config::ModelConfig& m) {
  const config::ExpertsConfig& e = m.experts;
  return llama_like::needs(m) + llama_like::some_experts(m) +
         Needs{{m.activation == config::Activation::clamped_swiglu, "activation: clamped_swiglu"},
               {m.attention.sinks, "attention: {sinks: true}"},
               {e.router_bias, "experts: {router_bias: true}"},
               {e.normalize, "experts: {normalize: true}"},
               {e.shared == 0, "experts: {shared: 0}"},
               {m.layers_with_experts() == m.n_layers, "experts: {every: 1, first_dense: 0}"},
               {m.has_qkv_bias() == m.bias, "qkv_bias: auto"},
               {m.qk_norm == config::QkNorm::none, "qk_norm: false"},
               {m.has_ffn_bias(), "ffn_bias: true"}};
}

// A tensor for all experts, whose parts are those of `parts` of each in turn.
void stacked(Table& t, const std::string& name, const std::string& experts,
             const config::ExpertsConfig& e, const std::vector<std::string>& parts,
             std::int64_t rows, std::int64_t cols) {
  const auto of_all = [&](const char* suffix) {
    std::vector<std::string> all;
    for (std::int64_t i = 0; i < e.count; ++i)
      for (const std::string& part : parts)
        all.push_back(experts + std::to_string(i) + "." + part + suffix);
    return all;
  };
  std::vector<std::int64_t> alternate;
  if (parts.size() > 1) alternate.assign(parts.size(), 1);
  t.add({.name = name,
         .shape = {e.count, cols, rows},
         .parts = of_all(".weight"),
         .transposed = true,
         .groups = e.count,
         .turns = alternate,
         .mxfp4 = true});
  t.add({.name = name + "_bias",
         .shape = {e.count, rows},
         .parts = of_all(".bias"),
         .groups = e.count,
         .turns = alternate});
}

void tensors(Table& t, const config::ModelConfig& m) {
  const std::int64_t C = m.d_model, F = m.experts.d_ff;
  t.tensor("model.embed_tokens.weight", {m.vocab_size, C}, "embedding.weight");
  for (std::int64_t l = 0; l < m.n_layers; ++l) {
    const std::string h = "model.layers." + std::to_string(l) + ".",
                      p = "layers." + std::to_string(l) + ".", f = p + "ffn.";
    t.norm(h + "input_layernorm", p + "attention_norm");
    t.attention(h + "self_attn.", {"q_proj", "k_proj", "v_proj", "o_proj"}, p + "attention");
    t.tensor(h + "self_attn.sinks", {m.n_heads}, p + "attention.sinks");
    t.norm(h + "post_attention_layernorm", p + "ffn_norm");
    t.linear(h + "mlp.router", f + "router", m.experts.count, C, true);
    const std::string experts = h + "mlp.experts.";
    stacked(t, experts + "gate_up_proj", f + "experts.", m.experts, {"gate", "up"}, 2 * F, C);
    stacked(t, experts + "down_proj", f + "experts.", m.experts, {"down"}, C, F);
  }
  t.norm("model.norm", "final_norm");
  if (!m.tied_head()) t.tensor("lm_head.weight", {m.vocab_size, C}, "head.weight");
}

}  // namespace

Architecture gpt_oss() {
  Architecture a = llama_like::architecture(
      "gpt_oss", [](const config::ModelConfig&) { return std::string("GptOssForCausalLM"); }, read,
      write, needs);
  a.tensors = tensors;
  a.windows = Windows::some;
  a.has_experts = true;
  a.mxfp4 = true;
  a.has = {Feature::clamped_gates, Feature::sinks, Feature::router_bias};
  return a;
}

}  // namespace tfm::huggingface
