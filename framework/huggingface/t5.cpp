#include "huggingface/architecture.h"

namespace tfm::huggingface {
namespace {

config::ModelConfig read(const io::JsonNode& c) {
  must_be(c, "is_encoder_decoder", true);
  config::ModelConfig m;
  m.family = config::Family::encoder_decoder;
  m.position = config::Position::relative;
  m.norm = config::Norm::rmsnorm;
  m.bias = m.scale_attention = false, m.head_bias = config::HeadBias::no;
  m.vocab_size = whole(c, "vocab_size", 32128);
  m.d_model = whole(c, "d_model", 512), m.n_heads = whole(c, "num_heads", 8),
  m.d_head = whole(c, "d_kv", 64), m.d_ff = whole(c, "d_ff", 2048);
  m.n_encoder_layers = layers(c, "num_layers", 6),
  m.n_decoder_layers = layers(c, "num_decoder_layers", m.n_encoder_layers);
  m.relative = {whole(c, "relative_attention_num_buckets", 32),
                whole(c, "relative_attention_max_distance", 128)};
  m.max_seq_len = whole(c, "n_positions", 512);
  m.norm_eps = real(c, "layer_norm_epsilon", 1e-6);
  std::string act = c.text("feed_forward_proj", "relu");
  const bool gated = act.starts_with("gated-");
  if (gated) act = act == "gated-gelu" ? "gelu_new" : act.substr(6);
  m.activation = activation_of(c, "feed_forward_proj", act, gated);
  const bool says_gated = has_member(c, "is_gated_act") ? c.flag("is_gated_act", false) : gated;
  if (c.text("dense_act_fn", act) != act || says_gated != gated)
    c.fail("dense_act_fn and is_gated_act contradict feed_forward_proj; expected '" + act +
           "' and " + (gated ? "true" : "false"));
  const double p = real(c, "dropout_rate", 0.1);
  m.dropout = {p, p, p, p, p};
  m.scale_logits = c.flag("scale_decoder_outputs", c.flag("tie_word_embeddings", true));
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

void write(Json& j, const config::ModelConfig& m) {
  const std::string act = activation_name(j, "", m.activation);
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
          {"feed_forward_proj", m.gated() ? "gated-" + (act == "gelu_new" ? "gelu" : act) : act},
          {"dense_act_fn", act},
          {"is_gated_act", m.gated()},
          {"dropout_rate", m.dropout.residual},
          {"scale_decoder_outputs", m.scale_logits},
          {"is_encoder_decoder", true}});
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
               {m.scale_embeddings == config::ScaleEmbeddings::no, "scale_embeddings: false"},
               {!m.embedding_norm, "embedding_norm: false"},
               {m.padding_idx < 0, "padding_idx: -1"}} +
         plain_attention(m) + plain_ffn(m);
}

void tensors(Table& t, const config::ModelConfig& m) {
  const std::int64_t C = m.d_model;
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
      if (m.gated()) {
        t.linear(f + "DenseReluDense.wi_0", p + "ffn.gate", m.d_ff, C, false);
        t.linear(f + "DenseReluDense.wi_1", p + "ffn.up", m.d_ff, C, false);
      } else {
        t.linear(f + "DenseReluDense.wi", p + "ffn.up", m.d_ff, C, false);
      }
      t.linear(f + "DenseReluDense.wo", p + "ffn.down", C, m.d_ff, false);
      t.norm(f + "layer_norm", p + "ffn_norm");
    }
    t.norm(stack + "final_layer_norm", stack + "final_norm");
  }
  if (!m.tied_head()) t.tensor("lm_head.weight", {m.vocab_size, C}, "head.weight");
}

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

}  // namespace tfm::huggingface
