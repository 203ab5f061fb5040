#pragma once
// A cache of timed choices: lines "key = 16 hexadecimal digits, 8 times" in a file that ranks
// share.
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace tfm::cuda {

using Algorithm = std::array<std::uint64_t, 8>;

// $XDG_CACHE_HOME/tfm or ~/.cache/tfm; empty where neither is known.
std::filesystem::path cache_folder();

class AlgorithmFile {
 public:
  // Reads the file; a missing file, an empty path and incomplete lines are ignored.
  explicit AlgorithmFile(std::filesystem::path path);
  std::optional<Algorithm> find(const std::string& key) const;
  // Appends a line in one write and returns what the first line with that key says, so that ranks
  // that measure at once agree. Nothing where the file cannot be written: what was measured would
  // then be this rank's alone.
  std::optional<Algorithm> add(const std::string& key, const Algorithm& algorithm);

 private:
  void read();

  std::filesystem::path path_;
  std::map<std::string, Algorithm> known_;
};

}  // namespace tfm::cuda
