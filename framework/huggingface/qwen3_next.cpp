// Qwen3-Next (Yang et al. 2025): the gated delta rule in three of four layers and gated attention,
// with positions in a part of each head, in the others; experts in all.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "huggingface/llama_like.h"

namespace tfm::huggingface {
namespace {

constexpr const char *kTypes = "layer_types", *kLinear = "linear_attention",
                     *kFull = "full_attention", *kEvery = "full_attention_interval",
                     *kPartial = "partial_rotary_factor", *kDelta = "gated_delta";

// Whether each layer has the delta rule.
std::vector<bool> delta_layers(const io::JsonNode& c, std::int64_t layers) {
  std::vector<bool> all;
  if (const auto types = c.find(kTypes)) {
    for (const io::JsonNode& type : types->items()) {
      if (type.string() != kLinear && type.string() != kFull)
        type.fail("'" + type.string() + "' is not supported; expected '" + kFull + "' or '" +
                  kLinear + "'");
      all.push_back(type.string() == kLinear);
    }
    if (std::ssize(all) != layers)
      types->fail("has " + std::to_string(all.size()) + " types; expected one for each of the " +
                  std::to_string(layers) + " layers (num_hidden_layers)");
    return all;
  }
  const std::int64_t every = whole(c, kEvery, 4);
  if (every == 0) c.at(kEvery).fail("expected a whole number >= 1");
  for (std::int64_t l = 0; l < layers; ++l) all.push_back((l + 1) % every != 0);
  return all;
}
std::vector<bool> delta_layers(const config::ModelConfig& m) {
  const auto stacks = m.stacks();
  std::vector<bool> all;
  for (const config::LayerConfig& l : stacks[0]) all.push_back(l.attention.type == kDelta);
  return all;
}

void read_delta(config::LayerConfig& l, const io::JsonNode& c) {
  l.n_heads = l.n_kv_heads = whole(c, "linear_num_value_heads", 32);
  l.d_head = whole(c, "linear_key_head_dim", 128);
  l.attention = {.type = kDelta,
                 .value_size = whole(c, "linear_value_head_dim", 128),
                 .key_heads = whole(c, "linear_num_key_heads", 16),
                 .convolution = whole(c, "linear_conv_kernel_dim", 4)};
  l.qk_norm = config::QkNorm::none;
  l.position = config::Position::none;
  l.dropout.attention = 0;
}

config::ModelConfig read(const io::JsonNode& c) {
  must_be(c, "attention_bias", false);
  must_say(c, "hidden_act", "silu");
  config::ModelConfig m = llama_like::read(c, {.vocab_size = 151936,
                                               .kv_heads = 2,
                                               .d_ff = 5632,
                                               .max_seq_len = 32768,
                                               .head_dim = 256,
                                               .d_model = 2048,
                                               .layers = 48,
                                               .heads = 16,
                                               .partial_rotary = true});
  const auto rope = c.find("rope_parameters");
  if (!c.find(kPartial) && !(rope && rope->find(kPartial))) m.rope.fraction = 0.25;
  m.norm_plus_one = true;
  m.qk_norm = config::QkNorm::heads;
  m.attention.output_gate = true;
  llama_like::read_experts(m, c, "num_experts", 512, 10);
  m.experts.d_ff = whole(c, "moe_intermediate_size", 512);
  m.experts.normalize = c.flag("norm_topk_prob", true);
  m.experts.shared = 1;
  m.experts.shared_d_ff = whole(c, "shared_expert_intermediate_size", 512);
  m.experts.shared_gate = true;
  m.expert_layers.every = whole(c, "decoder_sparse_step", 1, 10000);
  if (const auto dense = c.find("mlp_only_layers"))
    if (!dense->items().empty())
      dense->fail("layers without experts are not supported here; expected []");
  const std::vector<bool> delta = delta_layers(c, m.n_layers);
  for (const bool d : delta) m.layers.emplace_back(d ? "delta" : "attention");
  for (const bool d : {true, false})
    if (std::ranges::count(delta, d) > 0) m.layer_kinds.push_back({d ? "delta" : "attention", m});
  for (config::LayerKind& kind : m.layer_kinds)
    if (kind.name == "delta") read_delta(kind.layer, c);
  return m;
}

void write(Json& j, const config::ModelConfig& m) {
  const bool has_partial = contains(j, kPartial);
  llama_like::write(j, m);
  llama_like::write_experts(j, m, "num_experts");
  set(j["rope_parameters"], {{kPartial, m.rope.fraction}});
  if (has_partial) set(j, {{kPartial, m.rope.fraction}});
  set(j, {{"moe_intermediate_size", m.experts.d_ff},
          {"norm_topk_prob", m.experts.normalize},
          {"shared_expert_intermediate_size", m.experts.shared_d_ff},
          {"decoder_sparse_step", m.expert_layers.every},
          {"attention_bias", false}});
  const auto stacks = m.stacks();
  for (const config::LayerConfig& l : stacks[0])
    if (l.attention.type == kDelta)
      set(j, {{"linear_num_value_heads", l.n_heads},
              {"linear_key_head_dim", l.d_head},
              {"linear_value_head_dim", l.attention.value_size},
              {"linear_num_key_heads", l.attention.key_heads},
              {"linear_conv_kernel_dim", l.attention.convolution}});
  const std::vector<bool> delta = delta_layers(m);
  if (!contains(j, kTypes)) try {
      if (delta_layers(io::JsonNode(j, "config.json"), m.n_layers) == delta) return;
    } catch (const Error&) {  // it is of another architecture
    }
  j[kTypes] = Json::array();
  for (const bool d : delta) j[kTypes].push_back(d ? kLinear : kFull);
}

Needs needs(const config::ModelConfig& m) {
  const config::ExpertsConfig& e = m.experts;
  const auto stacks = m.stacks();
  std::vector<config::LayerConfig> deltas;
  bool alike = true;
  for (const config::LayerConfig& l : stacks[0])
    if (l.attention.type == kDelta) {
      alike &= deltas.empty() || l == deltas.front();
      deltas.push_back(l);
    }
  return llama_like::needs(m) + llama_like::some_experts(m) + plain_ffn(m) +
         Needs{{!m.bias, "bias: false"},
               {!m.has_qkv_bias(), "qkv_bias: false"},
               {m.norm_plus_one, "norm_plus_one: true"},
               {m.qk_norm == config::QkNorm::heads, "qk_norm: true"},
               {m.attention.output_gate, "attention: {output_gate: true}"},
               {alike, "one kind of layers with attention: {type: gated_delta}"},
               {m.activation == config::Activation::swiglu, "activation: swiglu"},
               {e.shared > 0 && e.shared_gate, "experts: {shared: 1, shared_gate: true}"},
               {m.expert_layers.first_dense == 0, "experts: {first_dense: 0}"}};
}

// Rows of each key head, and of the value heads that it serves, stand together.
void delta_tensors(Table& t, const config::LayerConfig& l, const std::string& h,
                   const std::string& p, std::int64_t C) {
  const std::int64_t KH = l.attention.key_heads, H = l.n_heads, D = l.d_head,
                     V = l.attention.value_size, served = H / KH;
  const auto parts = [&](std::initializer_list<const char*> names, const char* suffix) {
    std::vector<std::string> all;
    for (const char* name : names) all.push_back(p + name + suffix);
    return all;
  };
  t.add({.name = h + "in_proj_qkvz.weight",
         .shape = {2 * KH * D + 2 * H * V, C},
         .parts = parts({"query", "key", "value", "output_gate"}, ".weight"),
         .rows = {KH * D, KH * D, H * V, H * V},
         .turns = {D, D, served * V, served * V}});
  t.add({.name = h + "in_proj_ba.weight",
         .shape = {2 * H, C},
         .parts = parts({"beta", "decay"}, ".weight"),
         .turns = {served, served}});
  const std::int64_t K = l.attention.convolution;
  t.stacked(h + "conv1d.weight", {2 * KH * D + H * V, 1, K},
            parts({"query", "key", "value"}, "_convolution.weight"), {KH * D, KH * D, H * V});
  t.tensor(h + "A_log", {H}, p + "decay.log_rate");
  t.tensor(h + "dt_bias", {H}, p + "decay.bias");
  t.tensor(h + "norm.weight", {V}, p + "norm.weight");
  t.linear(h + "out_proj", p + "output", C, H * V, false);
}

void tensors(Table& t, const config::ModelConfig& m) {
  const std::int64_t C = m.d_model, D = m.d_head;
  const auto layers = m.stacks()[0];
  t.tensor("model.embed_tokens.weight", {m.vocab_size, C}, "embedding.weight");
  for (std::int64_t i = 0; i < m.n_layers; ++i) {
    const config::LayerConfig& l = layers[static_cast<std::size_t>(i)];
    const std::string h = "model.layers." + std::to_string(i) + ".",
                      p = "layers." + std::to_string(i) + ".", a = p + "attention.",
                      s = h + "self_attn.", f = p + "ffn.";
    t.norm(h + "input_layernorm", p + "attention_norm");
    if (l.attention.type == kDelta) {
      delta_tensors(t, l, h + "linear_attn.", a, C);
    } else {
      t.add({.name = s + "q_proj.weight",
             .shape = {2 * m.n_heads * D, C},
             .parts = {a + "query.weight", a + "output_gate.weight"},
             .turns = {D, D}});
      t.linear(s + "k_proj", a + "key", m.n_kv_heads * D, C, false);
      t.linear(s + "v_proj", a + "value", m.n_kv_heads * D, C, false);
      t.linear(s + "o_proj", a + "output", C, m.n_heads * D, false);
      t.tensor(s + "q_norm.weight", {D}, a + "query_norm.weight");
      t.tensor(s + "k_norm.weight", {D}, a + "key_norm.weight");
    }
    t.norm(h + "post_attention_layernorm", p + "ffn_norm");
    const config::ExpertsConfig& e = l.experts;
    if (e.count == 0) {
      t.gated_network(h + "mlp.", f, m.d_ff);
      continue;
    }
    t.tensor(h + "mlp.gate.weight", {e.count, C}, f + "router.weight");
    t.experts(h + "mlp.experts.", {"gate_proj", "up_proj", "down_proj"}, f + "experts.", e);
    t.gated_network(h + "mlp.shared_expert.", f + "shared.", e.shared_d_ff);
    t.tensor(h + "mlp.shared_expert_gate.weight", {1, C}, f + "shared_gate.weight");
  }
  t.norm("model.norm", "final_norm");
  if (!m.tied_head()) t.tensor("lm_head.weight", {m.vocab_size, C}, "head.weight");
}

}  // namespace

Architecture qwen3_next() {
  Architecture a = llama_like::architecture(
      "qwen3_next", [](const config::ModelConfig&) { return std::string("Qwen3NextForCausalLM"); },
      read, write, needs);
  a.tensors = tensors;
  a.has_experts = true;
  a.recurrent = kDelta;
  a.has = {Feature::norm_plus_one, Feature::partial_rotary, Feature::output_gate};
  return a;
}

}  // namespace tfm::huggingface
