#pragma once
// A Hugging Face directory: config.json, model.safetensors or model.safetensors.index.json with its
// shards.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "huggingface/tensors.h"
#include "io/safetensors.h"
#include "tokenizer/tokenizer.h"

namespace tfm::huggingface {

bool is_huggingface(const std::string& dir);  // has a config.json

// Copies the files of a tokenizer and of generation's settings.
void copy_companions(const std::string& from, const std::string& to);

class HuggingFaceModel {
 public:
  // Error(input) names file and tensor: a shard that is missing or has a path for a name, a tensor
  // that is missing, unknown, in two shards, of another shape or of an element type other than F32,
  // F16 and BF16, a tied one that is no copy.
  explicit HuggingFaceModel(const std::string& dir);

  const config::ModelConfig& model() const { return model_; }
  const std::string& type() const { return type_; }
  // Checks the tensors against a model that differs from model() in what config.json does not
  // decide (dropout, ...).
  void check(const config::ModelConfig& model);
  std::vector<float> part(const std::string& name) const;  // the whole part, row-major

  // What a checkpoint keeps so that an export gives the same files again: {"config": ..., "dtypes":
  // {name: type}, "unused": {name: checksum}, "directory": ...}. `directory`: where
  // keep_companions() put what is kept beside; empty: where the model is.
  std::string provenance(const std::string& directory = {}) const;
  // Copies the companions, and writes the tensors that the model does not use, if there are any, to
  // unused.safetensors.
  void keep_companions(const std::string& to) const;

 private:
  struct Place {
    std::size_t file;
    std::string name;  // in the file
  };
  void open(const std::string& file);
  void decide_heads();
  bool differ(const std::string& a,
              const std::string& b) const;  // in a byte; not where one is missing
  std::vector<float> read(const Place& place) const;

  std::string dir_, type_;
  config::ModelConfig model_;
  std::vector<std::unique_ptr<io::SafetensorsReader>> files_;
  std::map<std::string, Place> tensors_;  // by current name
  std::map<std::string, std::pair<ExchangedTensor, std::size_t>>
      parts_;                        // part -> tensor, place in its stack
  std::vector<std::string> unused_;  // buffers, and tensors in whose stead an optional one is used
};

// Writes DIR (made where it is not there): config.json, the weights in shards of at most 5 GB
// (every tensor that the model came with: what is used, copies of it, and what is not used, as it
// was), and the tokenizer's files of the directory it came from, or of `beside` where that is gone.
// What is not found any more is told on standard error. `ids`: of the tokenizer, where it is known.
// `part` gives whole parts. Old weights of DIR are removed. Error(input) where `provenance` is not
// HuggingFaceModel's.
void write_huggingface(const std::string& dir, const config::ModelConfig& model,
                       const std::optional<tokenizer::SpecialIds>& ids,
                       const std::string& provenance, const std::string& beside,
                       const std::function<std::vector<float>(const std::string& part)>& part);

// The tensors as Hugging Face shapes them, from whole parts.
std::vector<float> compose(const ExchangedTensor& tensor,
                           const std::function<std::vector<float>(const std::string& part)>& part);

}  // namespace tfm::huggingface
