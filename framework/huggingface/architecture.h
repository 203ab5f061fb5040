#pragma once
// What Hugging Face's transformers (versions 4 and 5) call a model type: how its config.json and
// its tensors are read and written. One file each; architecture.cpp lists them.
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "huggingface/members.h"
#include "huggingface/tensors.h"

namespace tfm::huggingface {

using Has = std::function<bool(const std::string& tensor)>;  // whether a directory holds it

struct Architecture {
  const char* name;                                             // model_type of config.json
  std::string (*class_name)(const config::ModelConfig& model);  // architectures of config.json

  config::ModelConfig (*read)(const io::JsonNode& config);
  // What is tied and which heads there are, where tensors decide it.
  void (*read_heads)(config::ModelConfig& model, const io::JsonNode& config, const Has& has);
  void (*write)(Json& config, const config::ModelConfig& model);
  // Whether the class computes what the model does.
  bool (*computes)(const config::ModelConfig& model);

  void (*tensors)(Table& table, const config::ModelConfig& model);
  // Files may also contain copies of tied tensors: the name of the original, or an empty string.
  std::string (*original_of)(const std::string& tensor);
  // Whether the model does not use a tensor.
  bool (*is_buffer)(const std::string& tensor);
  // A tensor that transformers adds and does not train: one of zeros is as none.
  const char* constant = "";
  // The name that current versions use.
  std::string (*current_name)(const std::string& tensor) = [](const std::string& tensor) {
    return tensor;
  };

  std::vector<ExchangedTensor> exchanged(const config::ModelConfig& model) const {
    Table table(model);
    tensors(table, model);
    return table.take();
  }
};

// That of config.json; Error(input) where its model_type is not known.
const Architecture& architecture_of(const io::JsonNode& config);
// One that computes what the model does: the `preferred` one where it does, as several may.
// Error(usage) where none does.
const Architecture& architecture_for(const config::ModelConfig& model,
                                     std::string_view preferred = {});

// An output layer that is not there, or that the configuration ties, is the embedding.
bool output_is_tied(const io::JsonNode& config, bool otherwise, const Has& has,
                    const char* output = "lm_head.weight");
bool matches(std::string_view name, std::string_view pattern);  // `#`: some digits
// Queries, keys and values have biases as the other layers have, and no norms.
bool attention_is_plain(const config::ModelConfig& model);
// Heads as wide as the model together, none shared.
bool heads_are_full(const config::ModelConfig& model);

}  // namespace tfm::huggingface
