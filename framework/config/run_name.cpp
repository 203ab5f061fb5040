#include "config/run_name.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "core/utf8.h"

namespace tfm::config {
namespace {

// Folders whose names say what is in them, or where, but not of which run.
constexpr std::array<std::string_view, 14> kGeneric{
    "",     ".",       "..",   "checkpoints", "checkpoint", "ckpts", "ckpt",
    "logs", "metrics", "runs", "run",         "output",     "out",   "tmp"};

std::string_view last_telling(std::string_view folder) {
  while (true) {
    const auto slash = folder.rfind('/');
    const std::string_view part = folder.substr(slash + 1);  // npos + 1 is 0
    if (std::ranges::find(kGeneric, part) == kGeneric.end()) return part;
    if (slash == folder.npos) return {};
    folder = folder.substr(0, slash);
  }
}

std::string_view folder_of(std::string_view file) {
  const auto slash = file.rfind('/');
  return slash == file.npos ? "" : file.substr(0, slash);
}

std::string_view stem_of(std::string_view file) {
  const std::string_view name = file.substr(file.rfind('/') + 1);
  const auto dot = name.rfind('.');
  return dot == 0 ? name : name.substr(0, dot);
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
  const std::string dir = config.checkpoint.directory();
  for (const std::string_view found :
       {last_telling(dir), last_telling(folder_of(config.metrics.jsonl)), stem_of(file)})
    if (!found.empty()) return as_run_name(found);
  return "run";
}

}  // namespace tfm::config
