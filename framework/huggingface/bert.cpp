#include "huggingface/bert_like.h"

namespace tfm::huggingface {
namespace {

config::ModelConfig read(const io::JsonNode& c) { return bert_like::read(c, 30522, 0); }

Needs needs(const config::ModelConfig& m) {
  return bert_like::needs(m) + Needs{{m.position_offset == 0, "position_offset: 0"}};
}

void tensors(Table& t, const config::ModelConfig& m) {
  bert_like::pretraining_tensors(t, m, "bert.pooler.dense");
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
          .read_heads = bert_like::read_pretraining_heads,
          .write = bert_like::write,
          .needs = needs,
          .tensors = tensors,
          .base = "bert.",
          .heads = {"cls.", "classifier."},
          .tied = bert_like::pretraining_tied,
          .is_buffer = is_buffer,
          .labels = &kLabelHeads};
}

}  // namespace tfm::huggingface
