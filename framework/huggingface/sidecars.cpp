#include "huggingface/sidecars.h"

#include <algorithm>
#include <filesystem>

#include "huggingface/architecture.h"
#include "io/file.h"

namespace tfm::huggingface {
namespace {

namespace fs = std::filesystem;

bool is_companion(std::string_view file) {
  constexpr std::string_view begins[] = {
      "tokenizer", "vocab",  "merges",        "special_tokens",    "added_tokens", "spiece",
      "source",    "target", "sentencepiece", "generation_config", "preprocessor", "chat_template"};
  constexpr std::string_view ends[] = {".json", ".txt", ".model", ".spm", ".jinja"};
  const auto in_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
  };
  for (const std::string_view begin : begins)
    for (const std::string_view end : ends)
      if (file.size() >= begin.size() + end.size() && file.starts_with(begin) &&
          file.ends_with(end) && std::ranges::all_of(file, in_name))
        return true;
  return false;
}

}  // namespace

bool is_weights_file(std::string_view file) {
  if (file.ends_with(".index.json")) file.remove_suffix(11);
  return file == "model.safetensors" ||
         (matches(file, "model-#-of-#.safetensors") && file.size() == 32 && file[11] == '-');
}

bool is_huggingface(const std::string& dir) {
  std::error_code ignored;
  return fs::exists(dir + "/config.json", ignored);
}

void copy_sidecars(const std::string& from, const std::string& to) {
  io::create_directories(to);
  std::error_code ignored;
  if (fs::equivalent(from, to, ignored)) return;
  for (const auto& e : fs::directory_iterator(from))
    if (is_companion(e.path().filename().string()))
      io::copy_file(e.path(), fs::path(to) / e.path().filename());
}

}  // namespace tfm::huggingface
