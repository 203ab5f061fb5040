#include "huggingface/bert_like.h"

namespace tfm::huggingface {
namespace {

config::ModelConfig read(const io::JsonNode& c) { return bert_like::read(c, 30522, 0); }

void read_heads(config::ModelConfig& m, const io::JsonNode& c, const Has& has) {
  const bool tied = output_is_tied(c, true, has, "cls.predictions.decoder.weight");
  m.tie_embeddings = tied ? config::TieEmbeddings::yes : config::TieEmbeddings::no;
  m.set_next_sentence(has("cls.seq_relationship.weight"));
}

Needs needs(const config::ModelConfig& m) {
  return bert_like::needs(m) + Needs{{m.position_offset == 0, "position_offset: 0"}};
}

void tensors(Table& t, const config::ModelConfig& m) {
  bert_like::tensors(t, m, {"bert.", "cls.predictions.", "transform.dense", "transform.LayerNorm"});
  if (!m.next_sentence()) return;
  t.linear("bert.pooler.dense", "pooler", m.d_model, m.d_model, true);
  t.linear("cls.seq_relationship", std::string(config::kNextSentence), 2, m.d_model, true);
}

std::vector<std::vector<std::string>> tied(const config::ModelConfig& m) {
  return bert_like::tied(m, "bert.", "cls.predictions.");
}
bool is_buffer(const std::string& tensor) {
  return tensor == "bert.embeddings.position_ids" || tensor.starts_with("bert.pooler.dense.") ||
         tensor.starts_with("cls.seq_relationship.");
}

constexpr LabelHeads kLabelHeads{"Bert", "bert.pooler.dense", config::Pooler::tanh, "classifier",
                                 "classifier"};

}  // namespace

Architecture bert() {
  return {.name = "bert",
          .family = config::Family::encoder,
          .class_name =
              [](const config::ModelConfig& m) {
                return std::string(m.next_sentence() ? "BertForPreTraining" : "BertForMaskedLM");
              },
          .read = read,
          .read_heads = read_heads,
          .write = bert_like::write,
          .needs = needs,
          .tensors = tensors,
          .base = "bert.",
          .heads = {"cls.", "classifier."},
          .tied = tied,
          .is_buffer = is_buffer,
          .labels = &kLabelHeads};
}

}  // namespace tfm::huggingface
