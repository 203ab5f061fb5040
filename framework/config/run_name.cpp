#include "config/run_name.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>

#include "core/utf8.h"

namespace tfm::config {
namespace {

// Folders whose names say what is in them, or where, but not of which run.
constexpr std::array<std::string_view, 15> kGeneric{
    "",     "/",       ".",    "..",  "checkpoints", "checkpoint", "ckpts", "ckpt",
    "logs", "metrics", "runs", "run", "output",      "out",        "tmp"};

std::string last_telling(const std::filesystem::path& folder) {
  std::string last;
  for (const std::filesystem::path& part : folder)
    if (std::ranges::find(kGeneric, part.native()) == kGeneric.end()) last = part.native();
  return last;
}

}  // namespace

std::string as_run_name(std::string_view text) {
  constexpr std::size_t longest = 128;
  std::string name;
  for (std::size_t length; !text.empty(); text.remove_prefix(length)) {
    const std::size_t well_formed = utf8_length(text);
    length = std::max<std::size_t>(well_formed, 1);
    if (name.size() + length > longest) break;
    const char c = text.front();
    const bool word = well_formed > 1 || c == '_' || (c > 0 && std::isalnum(c));
    const bool later = !name.empty() && std::string_view(".-+=,").find(c) != std::string_view::npos;
    name += word || later ? text.substr(0, length) : "_";
  }
  return name;
}

std::string derived_run_name(const Config& config, const std::string& file) {
  using std::filesystem::path;
  for (const std::string& found :
       {last_telling(config.checkpoint.dir), last_telling(path(config.metrics.jsonl).parent_path()),
        path(file).stem().string()})
    if (!found.empty()) return as_run_name(found);
  return "run";
}

}  // namespace tfm::config
