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

// A range of rows and columns of a part of shape (rows, cols); a vector has one column.
struct PartRange {
  std::int64_t rows = 0, cols = 1;
  // `last_row` and `last_col` are excluded.
  std::int64_t first_row = 0, last_row = 0, first_col = 0, last_col = 1;

  std::int64_t elements() const { return (last_row - first_row) * (last_col - first_col); }
};

// A model in a Hugging Face directory. Reads config.json and the headers of the weights; reads
// weights only where stated.
class HuggingFaceModel {
 public:
  // Error(input) names file and tensor: a shard that is missing or has a path for a name; a tensor
  // that is missing, unknown, in two shards, of another shape or of an element type other than F32,
  // F16 and BF16; a tied tensor that cannot be a copy.
  explicit HuggingFaceModel(const std::string& dir);

  const config::ModelConfig& model() const { return model_; }
  const Architecture& architecture() const { return *architecture_; }
  // Checks the tensors against a model that differs from model() only in what config.json does not
  // decide (dropout, ...).
  void check(const config::ModelConfig& model);
  // Reads the tied tensors and tables of sinusoidal positions: Error(input) if one is not a copy of
  // its original, or what tfm computes.
  void check_copies() const;
  // The number of elements of a part; nullopt if no tensor holds it.
  std::optional<std::int64_t> elements(const std::string& part) const;
  std::vector<std::string> parts() const;
  // Reads a range of a part, row-major.
  void read(const std::string& part, const PartRange& range, float* out) const;

  // What a checkpoint records so that an export gives the same files again, as JSON: {"config":
  // ..., "dtypes": {name: type}, "unused": {name: checksum}, "directory": ...}. Reads the tensors
  // that the model does not use. `directory`: where keep_sidecars() put its files; empty: the
  // model's directory.
  std::string provenance(const std::string& directory = {}) const;
  // Copies the sidecars to the directory `to`, and writes the tensors that the model does not use,
  // if any, to its unused.safetensors.
  void keep_sidecars(const std::string& to) const;

 private:
  struct TensorLocation {
    std::size_t file;
    std::string name;  // in the file
  };
  void open(const std::string& file);
  void take_tied_names();  // of tensors that are stored under another name than the first alone
  const io::TensorInfo& info(const TensorLocation& place) const {
    return files_[place.file]->info(place.name);
  }
  std::span<const std::byte> bytes(const TensorLocation& place) const {
    return files_[place.file]->bytes(place.name);
  }
  bool could_be_copies(const TensorLocation& a, const TensorLocation& b) const;  // by their headers
  bool are_copies(const TensorLocation& a, const TensorLocation& b) const;
  void check_tensor(const ExchangedTensor& expected, const TensorLocation& place) const;
  bool has_mxfp4(const ExchangedTensor& tensor) const;  // as which files have it
  void check_mxfp4(const ExchangedTensor& tensor) const;
  bool is_nothing(const std::string& name) const;  // Architecture::constant, all zeros
  void check_more(const std::string& name, const TensorLocation& place,
                  const config::ModelConfig& model);
  void check_sinusoid(const std::string& name) const;
  [[noreturn]] void fail_copy(const std::string& name) const;
  [[noreturn]] void fail_missing(const ExchangedTensor& tensor,
                                 const config::ModelConfig& model) const;
  // Behind a message about a tensor, where config.json names a class that tfm does not have.
  std::string other_class(const config::ModelConfig& model) const;
  [[noreturn]] void fail(const TensorLocation& place, const std::string& problem) const;
  // Buffers, and tensors in place of which an optional one is used.
  std::vector<std::string> unused() const;

  std::string dir_;
  const Architecture* architecture_;
  config::ModelConfig model_;
  std::vector<std::unique_ptr<io::SafetensorsReader>> files_;
  std::map<std::string, TensorLocation> tensors_;  // by current name
  // Part -> its tensor, and its index in the tensor's stack.
  std::map<std::string, std::pair<ExchangedTensor, std::size_t>> parts_;
  // Tensor -> part that an optional tensor provides instead.
  std::map<std::string, std::string> overridden_;
  std::map<std::string, std::string> copies_;  // tensor -> original
  std::vector<std::string> buffers_;
};

}  // namespace tfm::huggingface
