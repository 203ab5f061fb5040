#include "huggingface/llama_like.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tfm::huggingface::llama_like {
namespace {

constexpr const char* kOriginal = "original_max_position_embeddings";

using config::RopeScaling;
using enum config::RopeScalingType;

// How much longer sequences are than the original ones, where no factor says so.
double length_factor(const io::JsonNode& given, std::int64_t original, std::int64_t max_seq_len) {
  if (given.find("factor")) return given.at("factor").number();
  return static_cast<double>(max_seq_len) /
         static_cast<double>(std::max<std::int64_t>(original, 1));
}

RopeScaling yarn_in(const io::JsonNode& given, std::int64_t original, std::int64_t max_seq_len) {
  RopeScaling s{.factor = length_factor(given, original, max_seq_len),
                .original_max_seq_len = original,
                .type = yarn,
                .truncate = given.flag("truncate", true),
                .attention_factor = real(given, "attention_factor", 0),
                .mscale_all_dim = real(given, "mscale_all_dim", 0)};
  if (s.mscale_all_dim != 0) s.mscale = real(given, "mscale", 0);  // alone it means nothing
  if (const double fast = real(given, "beta_fast", 0); fast != 0) s.beta_fast = fast;
  if (const double slow = real(given, "beta_slow", 0); slow != 0) s.beta_slow = slow;
  return s;
}

const char* type_name(const RopeScaling& s) {
  return !s.on()              ? "default"
         : s.type == linear   ? "linear"
         : s.type == yarn     ? "yarn"
         : s.type == longrope ? "longrope"
                              : "llama3";
}

}  // namespace

// As transformers: rope_scaling comes before rope_parameters.
io::JsonNode rope_of(const io::JsonNode& c) {
  auto given = c.find("rope_scaling");
  if (!given || given->members().empty()) given = c.find("rope_parameters");
  return given ? *given : c;
}

// What stands beside the object is its own, but for original_max_position_embeddings, which comes
// before its own.
config::RopeConfig rope_in(const io::JsonNode& given, const io::JsonNode& beside,
                           const Defaults& defaults) {
  config::RopeConfig rope;
  for (const io::JsonNode& node : {beside, given})
    if (const char* key = "partial_rotary_factor"; node.find(key)) {
      rope.fraction = node.at(key).number();
      if (rope.fraction != 1 && !defaults.partial_rotary)
        node.at(key).fail("rotary positions in a part of each head are not supported; expected 1");
    }
  rope.theta = real(given, "rope_theta", real(beside, "rope_theta", defaults.theta));
  const std::string type = given.text("rope_type", given.text("type", "default"));
  if (type == "default") return rope;
  if (type == "linear") {
    rope.scaling = {.factor = given.at("factor").number(), .type = linear};
    return rope;
  }
  // Phi-3's stands beside the object alone.
  const std::int64_t original =
      defaults.longrope > 0
          ? whole(beside, kOriginal, defaults.longrope)
          : whole(beside.find(kOriginal) ? beside : given, kOriginal, defaults.max_seq_len);
  const bool fits_longrope = type == "longrope" || type == "su" || type == "yarn";
  if (defaults.longrope > 0 && fits_longrope)  // of Phi-3, which had other names for it
    rope.scaling = {.factor = std::max(1.0, length_factor(given, original, defaults.max_seq_len)),
                    .original_max_seq_len = original,
                    .type = longrope,
                    .attention_factor = real(given, "attention_factor", 0)};
  else if (type == "yarn")
    rope.scaling = yarn_in(given, original, defaults.max_seq_len);
  else if (type == "llama3")
    rope.scaling = {given.at("factor").number(), given.at("low_freq_factor").number(),
                    given.at("high_freq_factor").number(), original};
  else
    given.fail("the RoPE scaling '" + type +
               "' is not supported; expected default, linear, llama3 or " +
               (defaults.longrope > 0 ? "longrope" : "yarn"));
  return rope;
}

Json& write_rope(Json& object, const char* key, const config::RopeConfig& rope) {
  const RopeScaling& s = rope.scaling;
  const Json before = contains(object, key) ? object[key] : Json();
  Json& given = set_object(object, key);
  set(given, {{"rope_type", type_name(s)}});
  if (!s.on()) return given;
  set(given, {{"factor", s.factor}});
  if (s.type != linear) set(given, {{kOriginal, s.original_max_seq_len}});
  if (s.type == llama3)
    set(given, {{"low_freq_factor", s.low_freq_factor}, {"high_freq_factor", s.high_freq_factor}});
  if (const RopeScaling none; s.type == yarn)
    for (const auto& [name, differs, value] :
         {std::tuple{"beta_fast", s.beta_fast != none.beta_fast, MemberValue(s.beta_fast)},
          {"beta_slow", s.beta_slow != none.beta_slow, MemberValue(s.beta_slow)},
          {"truncate", !s.truncate, MemberValue(s.truncate)}})
      if (differs || contains(before, name)) set(given, {{name, value}});
  for (const auto& [name, value] : {std::pair{"attention_factor", s.attention_factor},
                                    {"mscale", s.mscale},
                                    {"mscale_all_dim", s.mscale_all_dim}})
    if (value > 0) set(given, {{name, value}});
  return given;
}

config::ModelConfig read(const io::JsonNode& c, const Defaults& defaults) {
  config::ModelConfig m;
  m.family = config::Family::decoder;
  m.position = config::Position::rope;
  m.norm = config::Norm::rmsnorm;
  m.vocab_size = whole(c, "vocab_size", defaults.vocab_size);
  m.d_model = whole(c, "hidden_size", defaults.d_model);
  m.n_layers = layers(c, "num_hidden_layers", defaults.layers);
  m.n_heads = whole(c, "num_attention_heads", defaults.heads);
  const bool absent = !has_member(c, "num_key_value_heads");
  m.n_kv_heads = whole(c, "num_key_value_heads",
                       absent && defaults.kv_heads > 0 ? defaults.kv_heads : m.n_heads);
  if (m.n_heads > 0)
    m.d_head =
        whole(c, "head_dim", defaults.head_dim > 0 ? defaults.head_dim : m.d_model / m.n_heads);
  m.d_ff = whole(c, "intermediate_size", defaults.d_ff),
  m.max_seq_len = whole(c, "max_position_embeddings", defaults.max_seq_len);
  m.activation = activation_of(c, defaults.activation_key,
                               c.text(defaults.activation_key, defaults.activation), true);
  m.norm_eps = real(c, "rms_norm_eps", 1e-6), m.init_std = real(c, "initializer_range", 0.02);
  m.bias = false, m.head_bias = config::HeadBias::no;
  m.padding_idx = padding(c, m.vocab_size, -1);
  m.dropout.attention = real(c, "attention_dropout", 0);
  Defaults of_rope = defaults;
  of_rope.max_seq_len = m.max_seq_len;
  m.rope = rope_in(rope_of(c), c, of_rope);
  return m;
}

void write(Json& j, const config::ModelConfig& m, const char* activation_key) {
  set(j, {{"hidden_size", m.d_model},
          {"num_hidden_layers", m.n_layers},
          {"num_attention_heads", m.n_heads},
          {"num_key_value_heads", m.n_kv_heads},
          {"head_dim", m.d_head},
          {"intermediate_size", m.d_ff},
          {"max_position_embeddings", m.max_seq_len},
          {activation_key, activation_name(j, activation_key, m.activation)},
          {"rms_norm_eps", m.norm_eps},
          {"attention_dropout", m.dropout.attention},
          {"initializer_range", m.init_std},
          {"rope_theta", m.rope.theta}});
  const RopeScaling& s = m.rope.scaling;
  if (!s.on()) set(j, {{"rope_scaling", nullptr}});
  if (s.on()) write_rope(j, "rope_scaling", m.rope);
  if (s.on() && contains(j, kOriginal)) set(j, {{kOriginal, s.original_max_seq_len}});
  set(write_rope(j, "rope_parameters", m.rope), {{"rope_theta", m.rope.theta}});
}

Needs needs(const config::ModelConfig& m) {
  return decoder(m) +
         Needs{{m.norm_position == config::NormPosition::pre, "norm_position: pre"},
               {m.scale_embeddings == config::ScaleEmbeddings::no, "scale_embeddings: false"}};
}

Needs decoder(const config::ModelConfig& m) {
  return {{m.position == config::Position::rope, "position: rope"},
          {m.norm == config::Norm::rmsnorm, "norm: rmsnorm"},
          {m.gated(), "activation: swiglu"},
          {m.scale_attention, "scale_attention: true"},
          {!m.embedding_norm, "embedding_norm: false"},
          {!m.scale_logits, "scale_logits: false"},
          {!m.has_head_bias(), "head_bias: false"}};
}

void tensors(Table& t, const config::ModelConfig& m, const ExpertNames& names) {
  const std::int64_t C = m.d_model;
  const bool inner = m.norm_position == config::NormPosition::inner,
             both = m.norm_position == config::NormPosition::both;
  const auto layers = m.stacks()[0];
  t.tensor("model.embed_tokens.weight", {m.vocab_size, C}, "embedding.weight");
  for (std::int64_t l = 0; l < m.n_layers; ++l) {
    const std::string h = "model.layers." + std::to_string(l) + ".",
                      p = "layers." + std::to_string(l) + ".";
    t.norm(h + (inner ? "post_attention_layernorm" : "input_layernorm"), p + "attention_norm");
    if (both) t.norm(h + "post_attention_layernorm", p + "attention_output_norm");
    t.attention(h + "self_attn.", {"q_proj", "k_proj", "v_proj", "o_proj"}, p + "attention");
    for (const auto& [theirs, ours, heads] :
         {std::tuple{"q_norm", "query_norm", m.n_heads}, {"k_norm", "key_norm", m.n_kv_heads}})
      if (m.qk_norm != config::QkNorm::none)
        t.tensor(h + "self_attn." + theirs + ".weight",
                 {(m.qk_norm == config::QkNorm::whole ? heads : 1) * m.d_head},
                 p + "attention." + ours + ".weight");
    t.norm(h + (inner  ? "post_feedforward_layernorm"
                : both ? "pre_feedforward_layernorm"
                       : "post_attention_layernorm"),
           p + "ffn_norm");
    if (both) t.norm(h + "post_feedforward_layernorm", p + "ffn_output_norm");
    const config::ExpertsConfig& e = layers[static_cast<std::size_t>(l)].experts;
    if (e.count == 0) {
      t.gated_network(h + "mlp.", p + "ffn.", m.d_ff);
      continue;
    }
    t.tensor(h + names.block + "gate.weight", {e.count, C}, p + "ffn.router.weight");
    t.experts(h + names.block + "experts.", names.networks, p + "ffn.experts.", e);
    if (e.shared_d_ff > 0)
      t.gated_network(h + names.block + "shared_expert.", p + "ffn.shared.", e.shared_d_ff);
    if (e.shared_gate)
      t.tensor(h + names.block + "shared_expert_gate.weight", {1, C}, p + "ffn.shared_gate.weight");
  }
  t.norm("model.norm", "final_norm");
  if (!m.tied_head()) t.tensor("lm_head.weight", {m.vocab_size, C}, "head.weight");
}

void read_experts(config::ModelConfig& m, const io::JsonNode& c, const char* count,
                  std::int64_t default_count, std::int64_t default_top_k) {
  m.experts.count = whole(c, count, default_count, 65536);
  m.experts.top_k = whole(c, "num_experts_per_tok", default_top_k, 65536);
  const bool has_loss = c.flag("output_router_logits", false);
  m.router_loss.balance = has_loss ? config::Balance::loss : config::Balance::none;
  if (has_loss) m.router_loss.over = config::BalanceOver::batch;
  m.router_loss.coefficient = real(c, "router_aux_loss_coef", 0.001);
}

void write_experts(Json& j, const config::ModelConfig& m, const char* count) {
  set(j, {{count, m.experts.count}, {"num_experts_per_tok", m.experts.top_k}});
  if (m.router_loss.balances_batch())
    set(j, {{"output_router_logits", true}, {"router_aux_loss_coef", m.router_loss.coefficient}});
}

Needs some_experts(const config::ModelConfig& m) {
  const config::ExpertsConfig& e = m.experts;
  return {{m.layers_with_experts() > 0, "experts: {count: 8}"},
          {e.router == config::Router::softmax, "experts: {router: softmax}"},
          {e.scale == 1, "experts: {scale: 1}"}};
}

namespace {

void read_heads(config::ModelConfig& m, const io::JsonNode& c, const Has& has) {
  m.tie_embeddings =
      output_is_tied(c, false, has) ? config::TieEmbeddings::yes : config::TieEmbeddings::no;
}

void tensors_without_experts(Table& t, const config::ModelConfig& m) {
  tensors(t, m, {"mlp.", {}});
}
std::vector<std::vector<std::string>> tied(const config::ModelConfig& m) {
  if (!m.tied_head()) return {};
  return {{"model.embed_tokens.weight", "lm_head.weight"}};
}

bool is_buffer(const std::string& tensor) { return tensor.ends_with(".rotary_emb.inv_freq"); }

}  // namespace

Architecture architecture(const char* name, decltype(Architecture::class_name) class_name,
                          decltype(Architecture::read) read, decltype(Architecture::write) write,
                          decltype(Architecture::needs) needs) {
  return {.name = name,
          .family = config::Family::decoder,
          .class_name = class_name,
          .read = read,
          .read_heads = read_heads,
          .write = write,
          .needs = needs,
          .tensors = tensors_without_experts,
          .base = "model.",
          .heads = {"lm_head."},
          .tied = tied,
          .is_buffer = is_buffer};
}

}  // namespace tfm::huggingface::llama_like
