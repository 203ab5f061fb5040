#pragma once
// Classes of transformers that end in ForSequenceClassification and ForTokenClassification: their
// heads are those of types classify, tag and regress.
#include <functional>

#include "huggingface/members.h"
#include "huggingface/tensors.h"

namespace tfm::huggingface {

// What they are called for a type of model.
struct LabelHeads {
  const char* prefix;     // of the classes: "Bert"
  const char* dense;      // tensor of the layer before the classes of sequences
  config::Pooler pooler;  // its activation
  const char* sequences;  // tensor of the classes of sequences
  const char* tokens;     // and of those of tokens
  // With these the layer has no bias, and a norm; it stands before classes of tokens, too.
  const char* norm = nullptr;
  const char* pooling = nullptr;  // the member that says how sequences are pooled: cls or mean
};

// Sets the model's head if `has` knows the tensors of one: names of its classes from id2label,
// where they are not LABEL_0, ...; a number, by problem_type or because there is one class. Error
// (input) for another class of transformers, and for several labels at once.
void read_label_heads(config::ModelConfig& m, const io::JsonNode& config, const LabelHeads& names,
                      const std::function<bool(const std::string& tensor)>& has);
// id2label, label2id, problem_type and how sequences are pooled.
void write_label_heads(Json& config, const config::ModelConfig& m, const LabelHeads& names);
void label_tensors(Table& table, const config::ModelConfig& m, const LabelHeads& names);
// The class of a model that has one such head.
std::string label_class(const config::ModelConfig& m, const LabelHeads& names);
// What the heads of a model with one of type classify, tag or regress must be instead; null:
// nothing. `names`: null if the type of model has no such classes.
const char* unmet_label_heads(const config::ModelConfig& m, const LabelHeads* names);

}  // namespace tfm::huggingface
