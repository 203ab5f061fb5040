// T5 (Raffel et al. 2020), and Switch Transformers (Fedus et al. 2022), which are T5 with experts
// in some layers.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "huggingface/architecture.h"

namespace tfm::huggingface {
namespace {

struct Defaults {
  std::int64_t d_model, heads, layers;
  std::int64_t decoder_layers = 0;  // 0: as many as the encoder's
};

config::ModelConfig read_both(const io::JsonNode& c, const Defaults& defaults) {
  must_be(c, "is_encoder_decoder", true);
  config::ModelConfig m;
  m.family = config::Family::encoder_decoder;
  m.position = config::Position::relative;
  m.norm = config::Norm::rmsnorm;
  m.bias = m.scale_attention = false, m.head_bias = config::HeadBias::no;
  m.vocab_size = whole(c, "vocab_size", 32128);
  m.d_model = whole(c, "d_model", defaults.d_model);
  m.n_heads = whole(c, "num_heads", defaults.heads);
  m.d_head = whole(c, "d_kv", 64), m.d_ff = whole(c, "d_ff", 2048);
  m.n_encoder_layers = layers(c, "num_layers", defaults.layers);
  const char* decoder = "num_decoder_layers";  // null: as many
  const bool own = defaults.decoder_layers > 0 && !has_member(c, decoder);
  m.n_decoder_layers = layers(c, decoder, own ? defaults.decoder_layers : m.n_encoder_layers);
  m.relative = {whole(c, "relative_attention_num_buckets", 32),
                whole(c, "relative_attention_max_distance", 128)};
  m.max_seq_len = whole(c, "n_positions", 512);
  m.norm_eps = real(c, "layer_norm_epsilon", 1e-6);
  const double p = real(c, "dropout_rate", 0.1);
  m.dropout = {p, p, p, p, p};
  m.scale_logits = c.flag("scale_decoder_outputs", c.flag("tie_word_embeddings", true));
  return m;
}

config::ModelConfig read(const io::JsonNode& c) {
  config::ModelConfig m = read_both(c, {.d_model = 512, .heads = 8, .layers = 6});
  std::string act = c.text("feed_forward_proj", "relu");
  const bool gated = act.starts_with("gated-");
  if (gated) act = act == "gated-gelu" ? "gelu_new" : act.substr(6);
  m.activation = activation_of(c, "feed_forward_proj", act, gated);
  const bool says_gated = has_member(c, "is_gated_act") ? c.flag("is_gated_act", false) : gated;
  if (c.text("dense_act_fn", act) != act || says_gated != gated)
    c.fail("dense_act_fn and is_gated_act contradict feed_forward_proj; expected '" + act +
           "' and " + (gated ? "true" : "false"));
  return m;
}

// The layers with experts of a stack are those whose number leaves 1 when divided by the step; all
// for a step of 1, none for 0.
constexpr std::pair<const char*, const char*> kStacks[] = {
    {"num_layers", "num_sparse_encoder_layers"},
    {"num_decoder_layers", "num_sparse_decoder_layers"}};

std::vector<bool> sparse_layers(const io::JsonNode& c, const char* sparse, std::int64_t count) {
  const std::int64_t some = layers(c, sparse, 3), step = some > 0 ? count / some : count;
  std::vector<bool> all;
  for (std::int64_t l = 0; l < count; ++l) all.push_back(step > 0 && (step == 1 || l % step == 1));
  return all;
}

config::ModelConfig read_switch(const io::JsonNode& c) {
  must_say(c, "router_dtype", "float32");
  config::ModelConfig m =
      read_both(c, {.d_model = 768, .heads = 12, .layers = 12, .decoder_layers = 12});
  m.scale_logits = c.flag("tie_word_embeddings", true);
  m.activation = activation_of(c, "dense_act_fn", c.text("dense_act_fn", "relu"), false);
  m.router_loss.balance = config::Balance::none;
  config::ExpertsConfig& e = m.experts;
  e.count = whole(c, "num_experts", 8, 65536);
  e.top_k = 1, e.normalize = false, e.d_ff = m.d_ff;
  e.router_bias = c.flag("router_bias", false);
  e.jitter = real(c, "router_jitter_noise", 0.01);
  e.capacity = whole(c, "expert_capacity", 64);
  if (e.capacity == 0) c.at("expert_capacity").fail("expected a whole number >= 1");
  const std::vector<bool> encoder = sparse_layers(c, kStacks[0].second, m.n_encoder_layers),
                          decoder = sparse_layers(c, kStacks[1].second, m.n_decoder_layers);
  const auto sparse = std::ranges::count(encoder, true) + std::ranges::count(decoder, true);
  if (sparse == 0)
    e = {};
  else if (e.count == 0)
    c.at("num_experts").fail("expected a whole number >= 1");
  if (sparse == 0 || sparse == m.total_layers()) return m;
  m.layer_kinds = {{"dense", m}, {"sparse", m}};
  m.layer_kinds[0].layer.experts = {};
  for (const auto& [stack, names] :
       {std::pair{&encoder, &m.encoder_layers}, {&decoder, &m.decoder_layers}})
    for (const bool has : *stack) names->emplace_back(has ? "sparse" : "dense");
  return m;
}

// Version 5 of transformers writes what tie_word_embeddings was as scale_decoder_outputs, beside a
// tie_word_embeddings that is always true: it ties the tables unless the file has both.
void read_heads(config::ModelConfig& m, const io::JsonNode& c, const Has& has) {
  const bool inputs = has("shared.weight") || has("encoder.embed_tokens.weight") ||
                      has("decoder.embed_tokens.weight"),
             tied = !inputs || !has("lm_head.weight") ||
                    (output_is_tied(c, true, has) && m.scale_logits);
  m.tie_embeddings = tied ? config::TieEmbeddings::all : config::TieEmbeddings::inputs;
}

void write_both(Json& j, const config::ModelConfig& m) {
  set(j, {{"d_model", m.d_model},
          {"num_heads", m.n_heads},
          {"d_kv", m.d_head},
          {"d_ff", m.d_ff},
          {"num_layers", m.n_encoder_layers},
          {"num_decoder_layers", m.n_decoder_layers},
          {"relative_attention_num_buckets", m.relative.buckets},
          {"relative_attention_max_distance", m.relative.max_distance},
          {"n_positions", m.max_seq_len},
          {"layer_norm_epsilon", m.norm_eps},
          {"dropout_rate", m.dropout.residual},
          {"is_encoder_decoder", true}});
}

void write(Json& j, const config::ModelConfig& m) {
  const std::string act = activation_name(j, "", m.activation);
  write_both(j, m);
  set(j, {{"feed_forward_proj", m.gated() ? "gated-" + (act == "gelu_new" ? "gelu" : act) : act},
          {"dense_act_fn", act},
          {"is_gated_act", m.gated()},
          {"scale_decoder_outputs", m.scale_logits}});
}

std::vector<bool> sparse_layers(const std::vector<config::LayerConfig>& stack) {
  std::vector<bool> all;
  for (const config::LayerConfig& l : stack) all.push_back(l.experts.count > 0);
  return all;
}

// The number of layers with experts that says which they are; nullopt: none does.
std::optional<std::int64_t> sparse_number(const config::ModelConfig& m, std::size_t stack) {
  const auto wanted = sparse_layers(m.stacks()[stack]);
  for (std::int64_t n = 0; n <= std::ssize(wanted); ++n) {
    const Json member{{kStacks[stack].second, n}};
    if (sparse_layers(io::JsonNode(member, ""), kStacks[stack].second, std::ssize(wanted)) ==
        wanted)
      return n;
  }
  return std::nullopt;
}

void write_switch(Json& j, const config::ModelConfig& m) {
  const config::ExpertsConfig& e = m.experts;
  write_both(j, m);
  set(j, {{"dense_act_fn", activation_name(j, "dense_act_fn", m.activation)},
          {"num_experts", e.count},
          {"router_bias", e.router_bias},
          {"router_jitter_noise", e.jitter},
          {"expert_capacity", e.capacity}});
  for (std::size_t stack = 0; stack < 2; ++stack) {
    const char* key = kStacks[stack].second;
    const auto wanted = sparse_layers(m.stacks()[stack]);
    if (!contains(j, key) ||
        sparse_layers(io::JsonNode(j, "config.json"), key, std::ssize(wanted)) != wanted)
      set(j, {{key, sparse_number(m, stack).value()}});
  }
}

Needs needs(const config::ModelConfig& m) {
  return Needs{{m.position == config::Position::relative, "position: relative"},
               {m.norm_position == config::NormPosition::pre, "norm_position: pre"},
               {m.norm == config::Norm::rmsnorm, "norm: rmsnorm"},
               {!m.bias, "bias: false"},
               {!m.scale_attention, "scale_attention: false"},
               {m.n_kv_heads == m.n_heads, "n_kv_heads: n_heads"},
               {m.tie_embeddings == config::TieEmbeddings::all ||
                    m.tie_embeddings == config::TieEmbeddings::inputs,
                "tie_embeddings: all or inputs"},
               {!m.has_head_bias(), "head_bias: false"},
               {m.activation != config::Activation::geglu_exact, "activation: geglu"},
               {m.scale_embeddings == config::ScaleEmbeddings::no, "scale_embeddings: false"},
               {!m.embedding_norm, "embedding_norm: false"},
               {m.padding_idx < 0, "padding_idx: -1"}} +
         plain_attention(m) + plain_ffn(m);
}

Needs needs_switch(const config::ModelConfig& m) {
  const config::ExpertsConfig& e = m.experts;
  return needs(m) +
         Needs{{m.layers_with_experts() > 0, "experts: {count: 8}"},
               {!m.gated(), "activation: relu"},
               {e.top_k == 1 && !e.normalize, "experts: {top_k: 1, normalize: false}"},
               {e.router == config::Router::softmax, "experts: {router: softmax}"},
               {e.scale == 1, "experts: {scale: 1}"},
               {e.shared == 0, "experts: {shared: 0}"},
               {e.d_ff == m.d_ff, "experts: {d_ff: d_ff}"},
               {e.capacity > 0, "experts: {capacity: 64}"},
               {m.scale_logits == (m.tie_embeddings == config::TieEmbeddings::all),
                "scale_logits: true, with tie_embeddings: all alone"},
               {sparse_number(m, 0) && sparse_number(m, 1), "experts in every so manieth layer"}};
}

// The feed-forward network of a layer: a part of T5's name, and of Switch Transformers'.
using TensorsOfFfn = void (*)(Table& t, const config::ModelConfig& m,
                              const config::LayerConfig& layer, const std::string& name,
                              const std::string& part);

void dense(Table& t, const config::ModelConfig& m, const config::LayerConfig&,
           const std::string& name, const std::string& part) {
  const std::string h = name + "DenseReluDense.";
  if (m.gated()) {
    t.linear(h + "wi_0", part + "gate", m.d_ff, m.d_model, false);
    t.linear(h + "wi_1", part + "up", m.d_ff, m.d_model, false);
  } else {
    t.linear(h + "wi", part + "up", m.d_ff, m.d_model, false);
  }
  t.linear(h + "wo", part + "down", m.d_model, m.d_ff, false);
}

void sparse(Table& t, const config::ModelConfig& m, const config::LayerConfig& layer,
            const std::string& name, const std::string& part) {
  const auto network = [&](const std::string& theirs, const std::string& ours) {
    t.linear(theirs + "wi", ours + "up", m.d_ff, m.d_model, false);
    t.linear(theirs + "wo", ours + "down", m.d_model, m.d_ff, false);
  };
  if (layer.experts.count == 0) return network(name + "mlp.", part);
  t.linear(name + "mlp.router.classifier", part + "router", layer.experts.count, m.d_model,
           layer.experts.router_bias);
  for (std::int64_t e = 0; e < layer.experts.count; ++e)
    network(name + "mlp.experts.expert_" + std::to_string(e) + ".",
            part + "experts." + std::to_string(e) + ".");
}

void tensors_with(Table& t, const config::ModelConfig& m, TensorsOfFfn ffn) {
  const std::int64_t C = m.d_model;
  const auto stacks = m.stacks();
  t.tensor("shared.weight", {m.vocab_size, C}, "embedding.weight");
  for (const std::string& stack : {std::string("encoder."), std::string("decoder.")}) {
    const bool decoder = stack == "decoder.";
    for (std::int64_t l = 0; l < (decoder ? m.n_decoder_layers : m.n_encoder_layers); ++l) {
      const std::string h = stack + "block." + std::to_string(l) + ".layer.",
                        p = stack + "layers." + std::to_string(l) + ".";
      t.attention(h + "0.SelfAttention.", {"q", "k", "v", "o"}, p + "attention");
      if (l == 0)
        t.tensor(h + "0.SelfAttention.relative_attention_bias.weight",
                 {m.relative.buckets, m.n_heads}, stack + "relative_bias.weight", true);
      t.norm(h + "0.layer_norm", p + "attention_norm");
      if (decoder) {
        t.attention(h + "1.EncDecAttention.", {"q", "k", "v", "o"}, p + "cross_attention");
        t.norm(h + "1.layer_norm", p + "cross_attention_norm");
      }
      const std::string f = h + (decoder ? "2." : "1.");
      ffn(t, m, stacks[decoder][static_cast<std::size_t>(l)], f, p + "ffn.");
      t.norm(f + "layer_norm", p + "ffn_norm");
    }
    t.norm(stack + "final_layer_norm", stack + "final_norm");
  }
  if (!m.tied_head()) t.tensor("lm_head.weight", {m.vocab_size, C}, "head.weight");
}

void tensors(Table& t, const config::ModelConfig& m) { tensors_with(t, m, dense); }
void tensors_switch(Table& t, const config::ModelConfig& m) { tensors_with(t, m, sparse); }

std::vector<std::vector<std::string>> tied(const config::ModelConfig& m) {
  std::vector<std::string> table{"shared.weight", "encoder.embed_tokens.weight",
                                 "decoder.embed_tokens.weight"};
  if (m.tied_head()) table.emplace_back("lm_head.weight");
  return {table};
}
bool is_buffer(const std::string& tensor) {
  return tensor == "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight";
}

}  // namespace

Architecture t5() {
  return {.name = "t5",
          .family = config::Family::encoder_decoder,
          .class_name =
              [](const config::ModelConfig&) { return std::string("T5ForConditionalGeneration"); },
          .read = read,
          .read_heads = read_heads,
          .write = write,
          .needs = needs,
          .tensors = tensors,
          .base = "transformer.",
          .heads = {""},
          .tied = tied,
          .is_buffer = is_buffer};
}

Architecture switch_transformers() {
  Architecture a = t5();
  a.name = "switch_transformers";
  a.class_name = [](const config::ModelConfig&) {
    return std::string("SwitchTransformersForConditionalGeneration");
  };
  a.read = read_switch;
  a.write = write_switch;
  a.needs = needs_switch;
  a.tensors = tensors_switch;
  a.has = {Feature::expert_capacity, Feature::router_bias};
  a.has_experts = a.some_experts = true;
  return a;
}

}  // namespace tfm::huggingface
