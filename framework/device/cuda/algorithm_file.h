#pragma once
// A cache of algorithm choices made by timing, in a text file that ranks share. A line is the key,
// " = " and 8 words of 16 hexadecimal digits each, without spaces.
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tfm::cuda {

using Algorithm = std::array<std::uint64_t, 8>;

// $XDG_CACHE_HOME/tfm or ~/.cache/tfm; empty if neither XDG_CACHE_HOME nor HOME is set.
std::filesystem::path cache_folder();

class AlgorithmFile {
 public:
  // Reads the file. A missing file, an empty path and malformed lines are ignored.
  explicit AlgorithmFile(std::filesystem::path path);
  // The first one in the file with that key and accepted.
  using Accepts = std::function<bool(const Algorithm&)>;
  std::optional<Algorithm> find(
      const std::string& key, const Accepts& accepts = [](const Algorithm&) { return true; }) const;
  // Appends a line in one write and returns what find() finds then, so that ranks that measure at
  // the same time agree. Returns nothing if the file cannot be opened for writing, since other
  // ranks could then not adopt the choice.
  std::optional<Algorithm> add(
      const std::string& key, const Algorithm& algorithm,
      const Accepts& accepts = [](const Algorithm&) { return true; });

 private:
  void read();

  std::filesystem::path path_;
  std::map<std::string, std::vector<Algorithm>> known_;  // in the order of the file
};

}  // namespace tfm::cuda
