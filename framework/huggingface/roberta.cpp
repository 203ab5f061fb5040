#include "huggingface/bert_like.h"

namespace tfm::huggingface {
namespace {

// Positions start at padding_idx + 1 and do not count padding.
config::ModelConfig read(const io::JsonNode& c) {
  config::ModelConfig m = bert_like::read(c, 50265, 1);
  if (m.padding_idx < 0) c.fail("pad_token_id is null; expected an id, as positions count from it");
  if (const auto pad = c.find("pad_token_id")) pad->integer(0, m.vocab_size - 1);
  must_say(c, "hidden_act", "gelu");  // transformers' LM head uses GELU whatever this says
  must_be(c, "add_cross_attention", false);
  m.position_offset = m.padding_idx + 1;
  if (m.max_seq_len <= m.position_offset)
    c.fail("max_position_embeddings " + std::to_string(m.max_seq_len) +
           " is not greater than pad_token_id " + std::to_string(m.padding_idx) +
           "; expected more than " + std::to_string(m.position_offset));
  m.max_seq_len -= m.position_offset;
  return m;
}

void read_heads(config::ModelConfig& m, const io::JsonNode& c, const Has& has) {
  m.tie_embeddings = output_is_tied(c, true, has, "lm_head.decoder.weight")
                         ? config::TieEmbeddings::yes
                         : config::TieEmbeddings::no;
}

void write(Json& j, const config::ModelConfig& m) {
  bert_like::write(j, m);
  set(j, {{"max_position_embeddings", m.max_seq_len + m.position_offset}});
}

Needs needs(const config::ModelConfig& m) {
  return bert_like::needs(m) +
         Needs{{m.position_offset > 0, "position_offset: 1 or more"},
               {m.padding_idx == m.position_offset - 1, "padding_idx: position_offset - 1"},
               {m.activation == config::Activation::gelu, "activation: gelu"},
               {!m.next_sentence(), "next_sentence: false"}};
}

void tensors(Table& t, const config::ModelConfig& m) {
  bert_like::tensors(t, m, {"roberta.", "lm_head.", "dense", "layer_norm"});
}

std::vector<std::vector<std::string>> tied(const config::ModelConfig& m) {
  return bert_like::tied(m, "roberta.", "lm_head.");
}

bool is_buffer(const std::string& tensor) {
  return tensor == "roberta.embeddings.position_ids" ||
         tensor == "roberta.embeddings.token_type_ids" || tensor == "roberta.pooler.dense.weight" ||
         tensor == "roberta.pooler.dense.bias";
}

constexpr LabelHeads kLabelHeads{"Roberta", "classifier.dense", config::Pooler::tanh,
                                 "classifier.out_proj", "classifier"};

}  // namespace

Architecture roberta() {
  return {
      .name = "roberta",
      .family = config::Family::encoder,
      .class_name = [](const config::ModelConfig&) { return std::string("RobertaForMaskedLM"); },
      .read = read,
      .read_heads = read_heads,
      .write = write,
      .needs = needs,
      .tensors = tensors,
      .base = "roberta.",
      .heads = {"lm_head.", "classifier."},
      .tied = tied,
      .is_buffer = is_buffer,
      .labels = &kLabelHeads};
}

}  // namespace tfm::huggingface
