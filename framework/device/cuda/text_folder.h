#pragma once
// A cache of texts in files of a folder that ranks share.
#include <filesystem>
#include <optional>
#include <string>

namespace tfm::cuda {

class TextFolder {
 public:
  // Made at the first text. Empty: nothing is kept.
  explicit TextFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}
  // What was kept under the key last. Nothing where that is missing, incomplete or damaged.
  std::optional<std::string> find(const std::string& key) const;
  // Replaces a file as a whole; where that cannot be, nothing is kept.
  void keep(const std::string& key, const std::string& text) const;

 private:
  std::filesystem::path file_of(const std::string& key) const;

  std::filesystem::path folder_;
};

}  // namespace tfm::cuda
