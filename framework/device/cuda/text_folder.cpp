#include "device/cuda/text_folder.h"

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "core/strings.h"

namespace tfm::cuda {
namespace {

// FNV-1a, 64 bits, as 16 hexadecimal digits.
std::string hash(const std::string& text) {
  std::uint64_t h = 0xcbf29ce484222325;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return printed("%016llx", static_cast<unsigned long long>(h));
}

// What follows the hash in a file.
std::string entry(const std::string& key, const std::string& text) { return key + "\n" + text; }

}  // namespace

std::filesystem::path TextFolder::file_of(const std::string& key) const {
  return folder_ / (hash(key) + ".txt");
}

std::optional<std::string> TextFolder::find(const std::string& key) const {
  if (folder_.empty()) return {};
  std::ifstream in(file_of(key), std::ios::binary);
  std::string digits;
  std::getline(in, digits);
  const std::string found{std::istreambuf_iterator<char>(in), {}};
  if (hash(found) != digits || !found.starts_with(entry(key, ""))) return {};
  return found.substr(key.size() + 1);
}

void TextFolder::keep(const std::string& key, const std::string& text) const {
  if (folder_.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(folder_, ignored);
  std::string part = (folder_ / "part-XXXXXX").string();
  const int file = mkstemp(part.data());
  if (file < 0) return;
  close(file);
  std::ofstream out(part, std::ios::binary);
  out << hash(entry(key, text)) << "\n" << entry(key, text);
  out.close();
  if (out)
    std::filesystem::rename(part, file_of(key), ignored);
  else
    ignored = std::make_error_code(std::errc::io_error);
  if (ignored) std::filesystem::remove(part, ignored);
}

}  // namespace tfm::cuda
