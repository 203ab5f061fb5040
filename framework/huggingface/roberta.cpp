#include "huggingface/roberta_like.h"

namespace tfm::huggingface {
namespace {

constexpr const char* kBase = "roberta.";
constexpr LabelHeads kLabelHeads{"Roberta", "classifier.dense", config::Pooler::tanh,
                                 "classifier.out_proj", "classifier"};

}  // namespace

Architecture roberta() {
  return {
      .name = "roberta",
      .family = config::Family::encoder,
      .class_name = [](const config::ModelConfig&) { return std::string("RobertaForMaskedLM"); },
      .read = [](const io::JsonNode& c) { return roberta_like::read(c, 50265); },
      .read_heads = roberta_like::read_heads,
      .write = roberta_like::write,
      .needs = roberta_like::needs,
      .tensors = [](Table& t, const config::ModelConfig& m) { roberta_like::tensors(t, m, kBase); },
      .base = kBase,
      .heads = {"lm_head.", "classifier."},
      .tied = [](const config::ModelConfig& m) { return roberta_like::tied(m, kBase); },
      .is_buffer = [](const std::string& t) { return roberta_like::is_buffer(t, kBase); },
      .labels = &kLabelHeads};
}

}  // namespace tfm::huggingface
