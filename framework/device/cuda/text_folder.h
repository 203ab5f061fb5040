#pragma once
// A cache of texts, one file each, in a folder that ranks share.
#include <filesystem>
#include <optional>
#include <string>

namespace tfm::cuda {

class TextFolder {
 public:
  // The folder is created by the first keep(). With an empty path nothing is kept.
  explicit TextFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}
  // The text last kept under the key; nothing if it is missing, incomplete or damaged.
  std::optional<std::string> find(const std::string& key) const;
  // Replaces the key's file atomically. Failures are ignored.
  void keep(const std::string& key, const std::string& text) const;

 private:
  std::filesystem::path file_of(const std::string& key) const;

  std::filesystem::path folder_;
};

}  // namespace tfm::cuda
