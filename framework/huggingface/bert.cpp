#include "huggingface/architecture.h"

namespace tfm::huggingface {
namespace {

config::ModelConfig read(const io::JsonNode& c) {
  must_say(c, "position_embedding_type", "absolute");
  must_be(c, "is_decoder", false);
  config::ModelConfig m{.family = "encoder",
                        .norm_position = "post",
                        .embedding_norm = true,
                        .head_transform = true,
                        .head_bias = "true"};
  m.vocab_size = whole(c, "vocab_size", 30522);
  m.d_model = whole(c, "hidden_size", 768), m.n_layers = layers(c, "num_hidden_layers", 12),
  m.n_heads = whole(c, "num_attention_heads", 12);
  m.d_ff = whole(c, "intermediate_size", 3072),
  m.max_seq_len = whole(c, "max_position_embeddings", 512);
  m.type_vocab_size = whole(c, "type_vocab_size", 2);
  m.padding_idx = whole(c, "pad_token_id", 0);
  m.activation = activation_of(c, "hidden_act", c.text("hidden_act", "gelu"), false);
  m.norm_eps = real(c, "layer_norm_eps", 1e-12), m.init_std = real(c, "initializer_range", 0.02);
  const double p = real(c, "hidden_dropout_prob", 0.1);
  m.dropout = {p, real(c, "attention_probs_dropout_prob", 0.1), p, 0};
  return m;
}

void read_heads(config::ModelConfig& m, const io::JsonNode& c, const Has& has) {
  const bool tied = output_is_tied(c, true, has, "cls.predictions.decoder.weight");
  m.tie_embeddings = tied ? "true" : "false";
  m.next_sentence = has("cls.seq_relationship.weight");
}

void write(Json& j, const config::ModelConfig& m) {
  j.update({{"hidden_size", m.d_model},
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

bool computes(const config::ModelConfig& m) {
  return m.family == "encoder" && m.position == "learned" && m.position_offset == 0 &&
         m.norm_position == "post" && m.norm == "layernorm" && heads_are_full(m) && m.bias &&
         !m.gated() && m.embedding_norm && m.type_vocab_size > 0 && m.head_transform &&
         m.has_head_bias() && !m.scale_embeddings && m.scale_attention && !m.scale_logits;
}

void tensors(Table& t, const config::ModelConfig& m) {
  const std::int64_t C = m.d_model;
  const std::string e = "bert.embeddings.", head = "cls.predictions.";
  t.tensor(e + "word_embeddings.weight", {m.vocab_size, C}, "embedding.weight");
  t.tensor(e + "position_embeddings.weight", {m.max_seq_len, C}, "position.weight");
  t.tensor(e + "token_type_embeddings.weight", {m.type_vocab_size, C}, "segment.weight");
  t.norm(e + "LayerNorm", "embedding_norm");
  for (std::int64_t l = 0; l < m.n_layers; ++l) {
    const std::string h = "bert.encoder.layer." + std::to_string(l) + ".",
                      p = "layers." + std::to_string(l) + ".";
    t.attention(h + "attention.", {"self.query", "self.key", "self.value", "output.dense"},
                p + "attention");
    t.norm(h + "attention.output.LayerNorm", p + "attention_norm");
    t.linear(h + "intermediate.dense", p + "ffn.up", m.d_ff, C, true);
    t.linear(h + "output.dense", p + "ffn.down", C, m.d_ff, true);
    t.norm(h + "output.LayerNorm", p + "ffn_norm");
  }
  t.linear(head + "transform.dense", "head.transform", C, C, true);
  t.norm(head + "transform.LayerNorm", "head.transform_norm");
  t.tensor(head + "bias", {m.vocab_size}, "head.bias");
  if (!m.tied_head()) {
    t.tensor(head + "decoder.weight", {m.vocab_size, C}, "head.weight");
    t.optional(head + "decoder.bias", {m.vocab_size},
               "head.bias");  // which version 5 of transformers has besides, and uses
  }
  if (!m.next_sentence) return;
  t.linear("bert.pooler.dense", "pooler", C, C, true);
  t.linear("cls.seq_relationship", "next_sentence", 2, C, true);
}

std::string original_of(const std::string& tensor) {
  if (tensor == "cls.predictions.decoder.weight") return "bert.embeddings.word_embeddings.weight";
  return tensor == "cls.predictions.decoder.bias" ? "cls.predictions.bias" : "";
}
bool is_buffer(const std::string& tensor) { return tensor == "bert.embeddings.position_ids"; }
// LayerNorm.gamma -> LayerNorm.weight
std::string current_name(const std::string& tensor) {
  for (const auto& [old, now] : {std::pair{".gamma", ".weight"}, {".beta", ".bias"}})
    if (tensor.ends_with(old))
      return tensor.substr(0, tensor.size() - std::string(old).size()) + now;
  return tensor;
}

}  // namespace

Architecture bert() {
  return {.name = "bert",
          .class_name =
              [](const config::ModelConfig& m) {
                return std::string(m.next_sentence ? "BertForPreTraining" : "BertForMaskedLM");
              },
          .read = read,
          .read_heads = read_heads,
          .write = write,
          .computes = computes,
          .tensors = tensors,
          .original_of = original_of,
          .is_buffer = is_buffer,
          .current_name = current_name};
}

}  // namespace tfm::huggingface
