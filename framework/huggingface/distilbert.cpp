#include "huggingface/bert_like.h"

namespace tfm::huggingface {
namespace {

// BERT without segments and without pooler (Sanh et al. 2019).
config::ModelConfig read(const io::JsonNode& c) {
  must_be(c, "sinusoidal_pos_embds", false);
  config::ModelConfig m = bert_like::plain();
  m.vocab_size = whole(c, "vocab_size", 30522);
  m.d_model = whole(c, "dim", 768), m.n_layers = layers(c, "n_layers", 6);
  m.n_heads = whole(c, "n_heads", 12);
  m.d_ff = whole(c, "hidden_dim", 4 * 768);
  m.max_seq_len = whole(c, "max_position_embeddings", 512);
  m.padding_idx = padding(c, m.vocab_size, 0);
  m.activation = activation_of(c, "activation", c.text("activation", "gelu"), false);
  m.norm_eps = 1e-12, m.init_std = real(c, "initializer_range", 0.02);
  const double p = real(c, "dropout", 0.1);
  m.dropout = {p, real(c, "attention_dropout", 0.1), p, 0};
  return m;
}

void read_heads(config::ModelConfig& m, const io::JsonNode& c, const Has& has) {
  m.tie_embeddings = output_is_tied(c, true, has, "vocab_projector.weight")
                         ? config::TieEmbeddings::yes
                         : config::TieEmbeddings::no;
}

void write(Json& j, const config::ModelConfig& m) {
  set(j, {{"dim", m.d_model},
          {"n_layers", m.n_layers},
          {"n_heads", m.n_heads},
          {"hidden_dim", m.d_ff},
          {"max_position_embeddings", m.max_seq_len},
          {"activation", activation_name(j, "activation", m.activation)},
          {"dropout", m.dropout.residual},
          {"attention_dropout", m.dropout.attention},
          {"sinusoidal_pos_embds", false},
          {"initializer_range", m.init_std}});
}

Needs needs(const config::ModelConfig& m) {
  return bert_like::plain_needs(m) + Needs{{m.type_vocab_size == 0, "type_vocab_size: 0"},
                                           {m.norm_eps == 1e-12, "norm_eps: 1.0e-12"},
                                           {m.position_offset == 0, "position_offset: 0"},
                                           {!m.next_sentence(), "next_sentence: false"}};
}

void tensors(Table& t, const config::ModelConfig& m) {
  const std::int64_t C = m.d_model;
  const std::string base = "distilbert.", e = base + "embeddings.";
  t.tensor(e + "word_embeddings.weight", {m.vocab_size, C}, "embedding.weight");
  t.tensor(e + "position_embeddings.weight", {m.max_seq_len, C}, "position.weight");
  t.norm(e + "LayerNorm", "embedding_norm");
  for (std::int64_t l = 0; l < m.n_layers; ++l) {
    const std::string h = base + "transformer.layer." + std::to_string(l) + ".",
                      p = "layers." + std::to_string(l) + ".";
    t.attention(h + "attention.", {"q_lin", "k_lin", "v_lin", "out_lin"}, p + "attention");
    t.norm(h + "sa_layer_norm", p + "attention_norm");
    t.linear(h + "ffn.lin1", p + "ffn.up", m.d_ff, C, true);
    t.linear(h + "ffn.lin2", p + "ffn.down", C, m.d_ff, true);
    t.norm(h + "output_layer_norm", p + "ffn_norm");
  }
  if (!m.head_of_type("lm")) return;
  t.linear("vocab_transform", "head.transform", C, C, true);
  t.norm("vocab_layer_norm", "head.transform_norm");
  t.tensor("vocab_projector.bias", {m.vocab_size}, "head.bias");
  if (!m.tied_head()) t.tensor("vocab_projector.weight", {m.vocab_size, C}, "head.weight");
}

std::vector<std::vector<std::string>> tied(const config::ModelConfig& m) {
  if (!m.tied_head() || !m.head_of_type("lm")) return {};
  return {{"distilbert.embeddings.word_embeddings.weight", "vocab_projector.weight"}};
}

constexpr LabelHeads kLabelHeads{"DistilBert", "pre_classifier", config::Pooler::relu, "classifier",
                                 "classifier"};

}  // namespace

Architecture distilbert() {
  return {
      .name = "distilbert",
      .family = config::Family::encoder,
      .class_name = [](const config::ModelConfig&) { return std::string("DistilBertForMaskedLM"); },
      .read = read,
      .read_heads = read_heads,
      .write = write,
      .needs = needs,
      .tensors = tensors,
      .base = "distilbert.",
      .heads = {"vocab_", "pre_classifier.", "classifier."},
      .tied = tied,
      .is_buffer = [](const std::string& t) { return t == "distilbert.embeddings.position_ids"; },
      .labels = &kLabelHeads};
}

}  // namespace tfm::huggingface
