#include "huggingface/architecture.h"

namespace tfm::huggingface {
namespace {

config::ModelConfig read(const io::JsonNode& c) {
  for (const char* key :
       {"scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_cross_attention"})
    must_be(c, key, false);
  config::ModelConfig m;
  m.family = config::Family::decoder;
  m.vocab_size = whole(c, "vocab_size", 50257);
  m.d_model = whole(c, "n_embd", 768), m.n_layers = layers(c, "n_layer", 12),
  m.n_heads = whole(c, "n_head", 12);
  m.d_ff = whole(c, "n_inner", 4 * m.d_model), m.max_seq_len = whole(c, "n_positions", 1024);
  m.activation =
      activation_of(c, "activation_function", c.text("activation_function", "gelu_new"), false);
  m.scale_attention = c.flag("scale_attn_weights", true);
  m.norm_eps = real(c, "layer_norm_epsilon", 1e-5), m.init_std = real(c, "initializer_range", 0.02);
  m.dropout = {real(c, "embd_pdrop", 0.1), real(c, "attn_pdrop", 0.1), real(c, "resid_pdrop", 0.1),
               0};
  return m;
}

void read_heads(config::ModelConfig& m, const io::JsonNode& c, const Has& has) {
  const bool tied = output_is_tied(c, true, has);
  m.tie_embeddings = tied ? config::TieEmbeddings::yes : config::TieEmbeddings::no;
  if (!tied) m.head_bias = config::HeadBias::no;
}

void write(Json& j, const config::ModelConfig& m) {
  set(j, {{"n_embd", m.d_model},
          {"n_layer", m.n_layers},
          {"n_head", m.n_heads},
          {"n_inner", m.d_ff},
          {"n_positions", m.max_seq_len},
          {"activation_function", activation_name(j, "activation_function", m.activation)},
          {"scale_attn_weights", m.scale_attention},
          {"layer_norm_epsilon", m.norm_eps},
          {"embd_pdrop", m.dropout.embedding},
          {"attn_pdrop", m.dropout.attention},
          {"resid_pdrop", m.dropout.residual},
          {"initializer_range", m.init_std}});
}

Needs needs(const config::ModelConfig& m) {
  return Needs{{m.position == config::Position::learned, "position: learned"},
               {m.position_offset == 0, "position_offset: 0"},
               {m.norm_position == config::NormPosition::pre, "norm_position: pre"},
               {m.norm == config::Norm::layernorm, "norm: layernorm"},
               {m.bias, "bias: true"},
               {!m.gated(), "an activation without gate"},
               {m.scale_embeddings == config::ScaleEmbeddings::no, "scale_embeddings: false"},
               {!m.embedding_norm, "embedding_norm: false"},
               {!m.scale_logits, "scale_logits: false"},
               {!m.has_head_bias(), "head_bias: false"},
               {m.padding_idx < 0, "padding_idx: -1"}} +
         plain_attention(m) + plain_ffn(m) + full_heads(m);
}

void tensors(Table& t, const config::ModelConfig& m) {
  const std::int64_t C = m.d_model;
  t.tensor("transformer.wte.weight", {m.vocab_size, C}, "embedding.weight");
  t.tensor("transformer.wpe.weight", {m.max_seq_len, C}, "position.weight");
  for (std::int64_t l = 0; l < m.n_layers; ++l) {
    const std::string h = "transformer.h." + std::to_string(l) + ".",
                      p = "layers." + std::to_string(l) + ".";
    t.norm(h + "ln_1", p + "attention_norm");
    t.conv(h + "attn.c_attn", {p + "attention.query", p + "attention.key", p + "attention.value"},
           3 * C, C);
    t.conv(h + "attn.c_proj", {p + "attention.output"}, C, C);
    t.norm(h + "ln_2", p + "ffn_norm");
    t.conv(h + "mlp.c_fc", {p + "ffn.up"}, m.d_ff, C);
    t.conv(h + "mlp.c_proj", {p + "ffn.down"}, C, m.d_ff);
  }
  t.norm("transformer.ln_f", "final_norm");
  if (!m.tied_head()) t.tensor("lm_head.weight", {m.vocab_size, C}, "head.weight");
}

std::vector<std::vector<std::string>> tied(const config::ModelConfig& m) {
  if (!m.tied_head()) return {};
  return {{"transformer.wte.weight", "lm_head.weight"}};
}
bool is_buffer(const std::string& tensor) {
  return matches(tensor, "transformer.h.#.attn.bias") ||
         matches(tensor, "transformer.h.#.attn.masked_bias");
}

}  // namespace

Architecture gpt2() {
  return {.name = "gpt2",
          .family = config::Family::decoder,
          .class_name = [](const config::ModelConfig&) { return std::string("GPT2LMHeadModel"); },
          .read = read,
          .read_heads = read_heads,
          .write = write,
          .needs = needs,
          .tensors = tensors,
          .base = "transformer.",
          .heads = {"lm_head."},
          .tied = tied,
          .is_buffer = is_buffer};
}

}  // namespace tfm::huggingface
