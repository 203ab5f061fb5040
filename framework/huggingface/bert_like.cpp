#include "huggingface/bert_like.h"

namespace tfm::huggingface::bert_like {

config::ModelConfig plain() {
  config::ModelConfig m;
  m.family = config::Family::encoder;
  m.norm_position = config::NormPosition::post;
  m.embedding_norm = true;
  m.head_transform = true;
  m.head_bias = config::HeadBias::yes;
  return m;
}

config::ModelConfig read(const io::JsonNode& c, std::int64_t vocab_size, std::int64_t pad) {
  must_say(c, "position_embedding_type", "absolute");
  must_be(c, "is_decoder", false);
  config::ModelConfig m = plain();
  m.vocab_size = whole(c, "vocab_size", vocab_size);
  m.d_model = whole(c, "hidden_size", 768), m.n_layers = layers(c, "num_hidden_layers", 12),
  m.n_heads = whole(c, "num_attention_heads", 12);
  m.d_ff = whole(c, "intermediate_size", 3072),
  m.max_seq_len = whole(c, "max_position_embeddings", 512);
  m.type_vocab_size = whole(c, "type_vocab_size", 2);
  m.padding_idx = padding(c, m.vocab_size, pad);
  m.activation = activation_of(c, "hidden_act", c.text("hidden_act", "gelu"), false);
  m.norm_eps = real(c, "layer_norm_eps", 1e-12), m.init_std = real(c, "initializer_range", 0.02);
  const double p = real(c, "hidden_dropout_prob", 0.1);
  m.dropout = {p, real(c, "attention_probs_dropout_prob", 0.1), p, 0};
  return m;
}

void write(Json& j, const config::ModelConfig& m) {
  set(j, {{"hidden_size", m.d_model},
          {"num_hidden_layers", m.n_layers},
          {"num_attention_heads", m.n_heads},
          {"intermediate_size", m.d_ff},
          {"max_position_embeddings", m.max_seq_len},
          {"type_vocab_size", m.type_vocab_size},
          {"hidden_act", activation_name(j, "hidden_act", m.activation)},
          {"layer_norm_eps", m.norm_eps},
          {"hidden_dropout_prob", m.dropout.residual},
          {"attention_probs_dropout_prob", m.dropout.attention},
          {"initializer_range", m.init_std}});
}

Needs plain_needs(const config::ModelConfig& m) {
  const bool lm = m.head_of_type("lm");
  return Needs{{m.position == config::Position::learned, "position: learned"},
               {m.norm_position == config::NormPosition::post, "norm_position: post"},
               {m.norm == config::Norm::layernorm, "norm: layernorm"},
               {m.bias, "bias: true"},
               {!m.gated(), "an activation without gate"},
               {m.embedding_norm, "embedding_norm: true"},
               {m.head_transform || !lm, "head_transform: true"},
               {m.has_head_bias() || !lm, "head_bias: true"},
               {m.scale_embeddings == config::ScaleEmbeddings::no, "scale_embeddings: false"},
               {m.scale_attention, "scale_attention: true"},
               {!m.scale_logits, "scale_logits: false"}} +
         plain_attention(m) + plain_ffn(m) + full_heads(m);
}

Needs needs(const config::ModelConfig& m) {
  return plain_needs(m) + Needs{{m.type_vocab_size > 0, "type_vocab_size: 1 or more"}};
}

void tensors(Table& t, const config::ModelConfig& m, const Names& names) {
  const std::int64_t C = m.d_model;
  const std::string base = names.base, e = base + "embeddings.", head = names.head;
  t.tensor(e + "word_embeddings.weight", {m.vocab_size, C}, "embedding.weight");
  t.tensor(e + "position_embeddings.weight", {m.max_seq_len + m.position_offset, C},
           "position.weight");
  t.tensor(e + "token_type_embeddings.weight", {m.type_vocab_size, C}, "segment.weight");
  t.norm(e + "LayerNorm", "embedding_norm");
  for (std::int64_t l = 0; l < m.n_layers; ++l) {
    const std::string h = base + "encoder.layer." + std::to_string(l) + ".",
                      p = "layers." + std::to_string(l) + ".";
    t.attention(h + "attention.", {"self.query", "self.key", "self.value", "output.dense"},
                p + "attention");
    t.norm(h + "attention.output.LayerNorm", p + "attention_norm");
    t.linear(h + "intermediate.dense", p + "ffn.up", m.d_ff, C, true);
    t.linear(h + "output.dense", p + "ffn.down", C, m.d_ff, true);
    t.norm(h + "output.LayerNorm", p + "ffn_norm");
  }
  if (!m.head_of_type("lm")) return;
  t.linear(head + names.dense, "head.transform", C, C, true);
  t.norm(head + names.norm, "head.transform_norm");
  t.tensor(head + "bias", {m.vocab_size}, "head.bias");
  if (!m.tied_head()) {
    t.last_is_overridden();
    t.tensor(head + "decoder.weight", {m.vocab_size, C}, "head.weight");
    t.optional(head + "decoder.bias", {m.vocab_size}, "head.bias");
  }
}

std::vector<std::vector<std::string>> tied(const config::ModelConfig& m, const std::string& base,
                                           const std::string& head) {
  if (!m.tied_head() || !m.head_of_type("lm")) return {};
  return {{base + "embeddings.word_embeddings.weight", head + "decoder.weight"},
          {head + "bias", head + "decoder.bias"}};
}

void read_pretraining_heads(config::ModelConfig& m, const io::JsonNode& c, const Has& has) {
  const bool tied = output_is_tied(c, true, has, "cls.predictions.decoder.weight");
  m.tie_embeddings = tied ? config::TieEmbeddings::yes : config::TieEmbeddings::no;
  m.set_next_sentence(has("cls.seq_relationship.weight"));
}

void pretraining_tensors(Table& t, const config::ModelConfig& m, const char* pooler) {
  tensors(t, m, {"bert.", "cls.predictions.", "transform.dense", "transform.LayerNorm"});
  if (!m.next_sentence()) return;
  t.linear(pooler, "pooler", m.d_model, m.d_model, true);
  t.linear("cls.seq_relationship", std::string(config::kNextSentence), 2, m.d_model, true);
}

std::vector<std::vector<std::string>> pretraining_tied(const config::ModelConfig& m) {
  return tied(m, "bert.", "cls.predictions.");
}

}  // namespace tfm::huggingface::bert_like
