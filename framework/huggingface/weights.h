#pragma once
// A Hugging Face directory: config.json, model.safetensors or model.safetensors.index.json with its
// shards.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "huggingface/architecture.h"
#include "io/safetensors.h"

namespace tfm::huggingface {

// Rows and columns of a part of (rows, columns); a vector has one column.
struct PartRange {
  std::int64_t rows = 0, cols = 1;
  std::int64_t first_row = 0, last_row = 0, first_col = 0, last_col = 1;  // the last ones excluded

  std::int64_t elements() const { return (last_row - first_row) * (last_col - first_col); }
};

// Reads config.json and the headers of the weights; the weights themselves only where stated.
class HuggingFaceModel {
 public:
  // Error(input) names file and tensor: a shard that is missing or has a path for a name, a tensor
  // that is missing, unknown, in two shards, of another shape or of an element type other than F32,
  // F16 and BF16, a tied one that cannot be a copy.
  explicit HuggingFaceModel(const std::string& dir);

  const config::ModelConfig& model() const { return model_; }
  const Architecture& architecture() const { return *architecture_; }
  // Checks the tensors against a model that differs from model() in what config.json does not
  // decide (dropout, ...).
  void check(const config::ModelConfig& model);
  // Reads the tensors that are tied to another one: Error(input) where one is no copy.
  void check_copies() const;
  // Of a part; nothing where no tensor holds it.
  std::optional<std::int64_t> elements(const std::string& part) const;
  std::vector<std::string> parts() const;
  // Reads what is asked for alone, row-major.
  void read(const std::string& part, const PartRange& range, float* out) const;

  // Reads what the model does not use. What a checkpoint keeps so that an export gives the same
  // files again: {"config": ..., "dtypes": {name: type}, "unused": {name: checksum}, "directory":
  // ...}. `directory`: where keep_sidecars() put what is kept beside; empty: where the model is.
  std::string provenance(const std::string& directory = {}) const;
  // Copies the sidecars, and writes the tensors that the model does not use, if there are any, to
  // unused.safetensors.
  void keep_sidecars(const std::string& to) const;

 private:
  struct TensorLocation {
    std::size_t file;
    std::string name;  // in the file
  };
  void open(const std::string& file);
  const io::TensorInfo& info(const TensorLocation& place) const {
    return files_[place.file]->info(place.name);
  }
  std::span<const std::byte> bytes(const TensorLocation& place) const {
    return files_[place.file]->bytes(place.name);
  }
  bool could_be_copies(const TensorLocation& a, const TensorLocation& b) const;  // by their headers
  bool are_copies(const TensorLocation& a, const TensorLocation& b) const;
  void check_tensor(const ExchangedTensor& expected, const TensorLocation& place) const;
  bool is_nothing(const std::string& name) const;  // Architecture::constant, of zeros
  void check_more(const std::string& name, const TensorLocation& place);
  [[noreturn]] void fail_copy(const std::string& name) const;
  [[noreturn]] void fail(const TensorLocation& place, const std::string& problem) const;
  // Buffers, and tensors in whose stead an optional one is used.
  std::vector<std::string> unused() const;

  std::string dir_;
  const Architecture* architecture_;
  config::ModelConfig model_;
  std::vector<std::unique_ptr<io::SafetensorsReader>> files_;
  std::map<std::string, TensorLocation> tensors_;  // by current name
  std::map<std::string, std::pair<ExchangedTensor, std::size_t>>
      parts_;                                      // part -> tensor, place in its stack
  std::map<std::string, std::string> overridden_;  // tensor -> part, which an optional one gives
  std::map<std::string, std::string> copies_;      // tensor -> original
  std::vector<std::string> buffers_;
};

}  // namespace tfm::huggingface
