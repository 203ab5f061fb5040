// Bamba (IBM, Princeton, CMU and UIUC 2024): Llama with positions in a part of each head, and the
// state space of Mamba-2 instead of attention in most layers.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "huggingface/llama_like.h"

namespace tfm::huggingface {
namespace {

constexpr const char *kAttention = "attn_layer_indices", *kPartial = "partial_rotary_factor",
                     *kMamba = "mamba2";

void read_mamba(config::LayerConfig& l, const io::JsonNode& c, std::int64_t d_model) {
  const std::int64_t inner = whole(c, "mamba_expand", 2) * d_model;
  l.n_heads = l.n_kv_heads = whole(c, "mamba_n_heads", 128);
  if (l.n_heads == 0 || inner % l.n_heads != 0)
    c.at("mamba_n_heads")
        .fail("does not divide mamba_expand * hidden_size, " + std::to_string(inner));
  const std::int64_t size = inner / l.n_heads;
  if (const auto given = c.find("mamba_d_head"); given && !given->is_string())
    if (given->integer(1, inner) != size)
      given->fail("is not mamba_expand * hidden_size / mamba_n_heads, " + std::to_string(size));
  l.d_head = whole(c, "mamba_d_state", 256);
  l.attention = {.type = kMamba,
                 .value_size = size,
                 .key_heads = whole(c, "mamba_n_groups", 1),
                 .convolution = whole(c, "mamba_d_conv", 4)};
  l.position = config::Position::none;
  l.dropout.attention = 0;
}

// Steps without limits: from 0 to infinity, which JSON has no number for.
void require_free_steps(const io::JsonNode& c) {
  const auto limits = c.find("time_step_limit");
  if (!limits) return;
  const auto both = limits->items();
  if (both.size() != 2 || both[0].number() != 0 || !both[1].is_object() ||
      both[1].text("__float__", "") != "Infinity")
    limits->fail("limits of time steps are not supported; expected 0 and infinity");
}

config::ModelConfig read(const io::JsonNode& c) {
  for (const char* bias : {"attention_bias", "mlp_bias", "mamba_proj_bias"})
    must_be(c, bias, false);
  if (!c.flag("mamba_conv_bias", true)) must_be(c, "mamba_conv_bias", true);
  must_say(c, "hidden_act", "silu");
  require_free_steps(c);
  if (real(c, "z_loss_coefficient", 0) != 0)
    c.at("z_loss_coefficient").fail("this term of the loss is not supported; expected 0");
  config::ModelConfig m = llama_like::read(c, {.vocab_size = 128000,
                                               .kv_heads = 8,
                                               .d_ff = 14336,
                                               .max_seq_len = 262144,
                                               .partial_rotary = true});
  if (!has_member(c, "rms_norm_eps")) m.norm_eps = 1e-5;
  const auto rope = c.find("rope_parameters");
  if (!(rope && rope->find(kPartial))) m.rope.fraction = 0.5;
  m.padding_idx = padding(c, m.vocab_size, 0);
  std::vector<bool> mamba(static_cast<std::size_t>(m.n_layers), true);
  if (const auto indices = c.find(kAttention))
    for (const io::JsonNode& index : indices->items())
      mamba[static_cast<std::size_t>(index.integer(0, m.n_layers - 1))] = false;
  for (const bool l : mamba) m.layers.emplace_back(l ? "mamba" : "attention");
  for (const bool of : {true, false})
    if (std::ranges::count(mamba, of) > 0) m.layer_kinds.push_back({of ? "mamba" : "attention", m});
  for (config::LayerKind& kind : m.layer_kinds)
    if (kind.name == "mamba") read_mamba(kind.layer, c, m.d_model);
  return m;
}

void write(Json& j, const config::ModelConfig& m) {
  llama_like::write(j, m);
  set(j["rope_parameters"], {{kPartial, m.rope.fraction}});
  j[kAttention] = Json::array();
  const auto layers = m.stacks()[0];
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const config::LayerConfig& l = layers[i];
    if (l.attention.type != kMamba)
      j[kAttention].push_back(i);
    else
      set(j, {{"mamba_n_heads", l.n_heads},
              {"mamba_d_head", l.attention.value_size},
              {"mamba_d_state", l.d_head},
              {"mamba_n_groups", l.attention.key_heads},
              {"mamba_d_conv", l.attention.convolution},
              {"mamba_expand", l.n_heads * l.attention.value_size / m.d_model},
              {"mamba_conv_bias", true},
              {"mamba_proj_bias", false}});
  }
}

Needs needs(const config::ModelConfig& m) {
  const auto stacks = m.stacks();
  const config::LayerConfig* first = nullptr;
  bool alike = true, whole = true;
  for (const config::LayerConfig& l : stacks[0])
    if (l.attention.type == kMamba) {
      if (!first) first = &l;
      alike &= l == *first;
      whole &= l.n_heads * l.attention.value_size % m.d_model == 0;
    }
  return llama_like::needs(m) + plain_attention(m) + plain_ffn(m) +
         Needs{{!m.bias, "bias: false"},
               {m.d_head * m.n_heads == m.d_model, "d_head: d_model / n_heads"},
               {alike, "one kind of layers with attention: {type: mamba2}"},
               {whole, "attention: {value_size: a multiple of d_model / n_heads} of mamba2"},
               {m.activation == config::Activation::swiglu, "activation: swiglu"}};
}

void mamba_tensors(Table& t, const config::LayerConfig& l, const std::string& h,
                   const std::string& p, std::int64_t C) {
  const std::int64_t keys = l.attention.key_heads * l.d_head, H = l.n_heads,
                     values = H * l.attention.value_size, K = l.attention.convolution,
                     convolved = values + 2 * keys;
  t.stacked(h + "in_proj.weight", {values + convolved + H, C},
            {p + "output_gate.weight", p + "value.weight", p + "key.weight", p + "query.weight",
             p + "step.weight"},
            {values, values, keys, keys, H});
  const auto convolution = [&](const char* of) {
    std::vector<std::string> parts;
    for (const char* part : {"value", "key", "query"})
      parts.push_back(p + part + "_convolution." + of);
    return parts;
  };
  t.stacked(h + "conv1d.weight", {convolved, 1, K}, convolution("weight"), {values, keys, keys});
  t.stacked(h + "conv1d.bias", {convolved}, convolution("bias"), {values, keys, keys});
  t.tensor(h + "A_log", {H}, p + "decay.log_rate");
  t.tensor(h + "dt_bias", {H}, p + "decay.bias");
  t.tensor(h + "D", {H}, p + "skip");
  t.tensor(h + "norm.weight", {values}, p + "norm.weight");
  t.linear(h + "out_proj", p + "output", C, values, false);
}

void tensors(Table& t, const config::ModelConfig& m) {
  const std::int64_t C = m.d_model, D = m.d_head;
  const auto layers = m.stacks()[0];
  t.tensor("model.embed_tokens.weight", {m.vocab_size, C}, "embedding.weight");
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string h = "model.layers." + std::to_string(i) + ".",
                      p = "layers." + std::to_string(i) + ".", a = p + "attention.",
                      s = h + "self_attn.";
    t.norm(h + "input_layernorm", p + "attention_norm");
    if (layers[i].attention.type == kMamba) {
      mamba_tensors(t, layers[i], h + "mamba.", a, C);
    } else {
      t.linear(s + "q_proj", a + "query", m.n_heads * D, C, false);
      t.linear(s + "k_proj", a + "key", m.n_kv_heads * D, C, false);
      t.linear(s + "v_proj", a + "value", m.n_kv_heads * D, C, false);
      t.linear(s + "o_proj", a + "output", C, m.n_heads * D, false);
    }
    t.norm(h + "pre_ff_layernorm", p + "ffn_norm");
    t.gated_network(h + "feed_forward.", p + "ffn.", m.d_ff);
  }
  t.norm("model.final_layernorm", "final_norm");
  if (!m.tied_head()) t.tensor("lm_head.weight", {m.vocab_size, C}, "head.weight");
}

}  // namespace

Architecture bamba() {
  Architecture a = llama_like::architecture(
      "bamba", [](const config::ModelConfig&) { return std::string("BambaForCausalLM"); }, read,
      write, needs);
  a.tensors = tensors;
  a.recurrent = kMamba;
  a.has = {Feature::partial_rotary};
  return a;
}

}  // namespace tfm::huggingface
