#pragma once
// Which tensors of a Hugging Face directory are which parts of a model.
#include <string>
#include <vector>

#include "config/config.h"

namespace tfm::huggingface {

struct ExchangedTensor {
  std::string name;                 // Hugging Face's
  std::vector<std::int64_t> shape;  // Hugging Face's
  std::vector<std::string> parts;   // stacked along their rows
  bool transposed = false;          // the stack is (columns, rows) in the file
  bool optional = false;  // not in every file: another tensor may hold the parts, which this one
                          // takes precedence over
};

// Every tensor of a model of the type, in the order of its use.
std::vector<ExchangedTensor> exchanged_tensors(const config::ModelConfig& model,
                                               const std::string& type);

// Besides, files may hold buffers, and copies of tensors: the name of the original, or nothing.
bool is_buffer(const std::string& type, const std::string& name);
std::string original_of(const std::string& type, const std::string& name);

// The name that current versions use: LayerNorm.gamma -> LayerNorm.weight, gpt2 without its prefix
// -> with it.
std::string current_name(const std::string& type, const std::string& name);

}  // namespace tfm::huggingface
