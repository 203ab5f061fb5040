#include "huggingface/llama_like.h"

namespace tfm::huggingface::llama_like {
namespace {

// As transformers: rope_scaling comes before rope_parameters.
config::RopeConfig read_rope(const io::JsonNode& c, std::int64_t max_seq_len) {
  auto given = c.find("rope_scaling");
  if (!given || given->members().empty()) given = c.find("rope_parameters");
  return rope_in(given ? *given : c, c, max_seq_len, 10000);
}

// Linear scaling: the shortest wavelength, 2 pi, is longer than this length.
constexpr std::int64_t kEveryWavelength = 1;

}  // namespace

// What stands beside the object is its own, but for original_max_position_embeddings, which comes
// before its own.
config::RopeConfig rope_in(const io::JsonNode& given, const io::JsonNode& beside,
                           std::int64_t max_seq_len, double theta) {
  config::RopeConfig rope;
  for (const io::JsonNode& node : {beside, given})
    if (const char* key = "partial_rotary_factor"; real(node, key, 1) != 1)
      node.at(key).fail("rotary positions in a part of each head are not supported; expected 1");
  rope.theta = real(given, "rope_theta", real(beside, "rope_theta", theta));
  const std::string type = given.text("rope_type", given.text("type", "default"));
  if (type == "default") return rope;
  if (type == "linear") {
    rope.scaling = {given.at("factor").number(), 1, 4, kEveryWavelength};
    return rope;
  }
  if (type != "llama3")
    given.fail("the RoPE scaling '" + type +
               "' is not supported; expected default, linear or llama3");
  const char* original = "original_max_position_embeddings";
  rope.scaling = {given.at("factor").number(), given.at("low_freq_factor").number(),
                  given.at("high_freq_factor").number(),
                  whole(beside.find(original) ? beside : given, original, max_seq_len)};
  return rope;
}

void write_rope(Json& given, const config::RopeConfig& rope) {
  const config::RopeScaling& s = rope.scaling;
  const bool scaled = s.factor != 1, linear = s.original_max_seq_len == kEveryWavelength;
  set(given, {{"rope_type", !scaled ? "default" : linear ? "linear" : "llama3"}});
  if (scaled) set(given, {{"factor", s.factor}});
  if (scaled && !linear)
    set(given, {{"low_freq_factor", s.low_freq_factor},
                {"high_freq_factor", s.high_freq_factor},
                {"original_max_position_embeddings", s.original_max_seq_len}});
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
  m.rope = read_rope(c, m.max_seq_len);
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
  const config::RopeScaling& s = m.rope.scaling;
  set(j, {{"rope_scaling", nullptr}});
  if (s.factor != 1) write_rope(set_object(j, "rope_scaling"), m.rope);
  if (const char* original = "original_max_position_embeddings";
      s.factor != 1 && contains(j, original))
    set(j, {{original, s.original_max_seq_len}});
  Json& rope = set_object(j, "rope_parameters");
  write_rope(rope, m.rope);
  set(rope, {{"rope_theta", m.rope.theta}});
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
  const auto network = [&](const std::string& name, const std::string& part, std::int64_t F) {
    t.linear(name + "gate_proj", part + "gate", F, C, m.has_ffn_bias());
    t.linear(name + "up_proj", part + "up", F, C, m.has_ffn_bias());
    t.linear(name + "down_proj", part + "down", C, F, m.has_ffn_bias());
  };
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
      network(h + "mlp.", p + "ffn.", m.d_ff);
      continue;
    }
    t.tensor(h + names.block + "gate.weight", {e.count, C}, p + "ffn.router.weight");
    t.experts(h + names.block + "experts.", names.networks, p + "ffn.experts.", e);
    if (e.shared_d_ff > 0)
      network(h + names.block + "shared_expert.", p + "ffn.shared.", e.shared_d_ff);
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
