#include "device/cuda/algorithm_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "core/strings.h"

namespace tfm::cuda {
namespace {

constexpr const char* kSeparator = " = ";

std::string line_of(const std::string& key, const Algorithm& algorithm) {
  std::string line = key + kSeparator;
  for (const std::uint64_t word : algorithm)
    line += printed("%016llx", static_cast<unsigned long long>(word));
  return line + "\n";
}

std::optional<Algorithm> algorithm_of(const std::string& digits) {
  if (digits.size() != 128 || digits.find_first_not_of("0123456789abcdef") != std::string::npos)
    return {};
  Algorithm algorithm;
  for (std::size_t i = 0; i < algorithm.size(); ++i)
    algorithm[i] = std::stoull(digits.substr(16 * i, 16), nullptr, 16);
  return algorithm;
}

}  // namespace

std::filesystem::path cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache)
    return std::filesystem::path(cache) / "tfm";
  if (const char* home = std::getenv("HOME"); home && *home)
    return std::filesystem::path(home) / ".cache" / "tfm";
  return {};
}

AlgorithmFile::AlgorithmFile(std::filesystem::path path) : path_(std::move(path)) { read(); }

void AlgorithmFile::read() {
  std::ifstream in(path_);
  known_.clear();
  for (std::string line; std::getline(in, line);)
    if (const auto at = line.find(kSeparator); at != std::string::npos)
      if (const auto algorithm = algorithm_of(line.substr(at + 3)))
        known_[line.substr(0, at)].push_back(*algorithm);
}

std::optional<Algorithm> AlgorithmFile::find(const std::string& key, const Accepts& accepts) const {
  const auto of_key = known_.find(key);
  if (of_key == known_.end()) return {};
  const auto found = std::ranges::find_if(of_key->second, accepts);
  return found == of_key->second.end() ? std::nullopt : std::optional(*found);
}

std::optional<Algorithm> AlgorithmFile::add(const std::string& key, const Algorithm& algorithm,
                                            const Accepts& accepts) {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::create_directories(path_.parent_path(), ignored);
  const int file = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return {};
  const std::string line = line_of(key, algorithm);
  [[maybe_unused]] const auto written = write(file, line.data(), line.size());
  close(file);
  read();
  return find(key, accepts);
}

}  // namespace tfm::cuda
