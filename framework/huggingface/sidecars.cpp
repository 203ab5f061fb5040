#include "huggingface/sidecars.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include "huggingface/architecture.h"
#include "io/file.h"

namespace tfm::huggingface {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTokenizer[] = {"tokenizer",      "vocab",        "merges",
                                           "special_tokens", "added_tokens", "spiece",
                                           "source",         "target",       "sentencepiece"},
                           kOthers[] = {"generation_config", "preprocessor", "chat_template",
                                        "sentence_bert_config"};

bool begins_with_one_of(std::string_view file, std::span<const std::string_view> begins) {
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

bool same_contents(const std::string& a, const std::string& b) {
  const io::MappedFile first(a), second(b);
  return std::ranges::equal(first.bytes(), second.bytes());
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

bool is_tokenizer_file(std::string_view file) { return begins_with_one_of(file, kTokenizer); }

std::vector<Sidecar> sidecars_in(const std::string& dir) {
  std::vector<Sidecar> found;
  for (const auto& e : fs::directory_iterator(dir)) {
    const std::string name = e.path().filename().string();
    if (is_tokenizer_file(name) || begins_with_one_of(name, kOthers))
      found.push_back({name, e.path().string(), ""});
  }
  const std::string templates = "additional_chat_templates";
  if (fs::is_directory(dir + "/" + templates))
    for (const auto& e : fs::directory_iterator(dir + "/" + templates))
      if (e.path().extension() == ".jinja")
        found.push_back({templates + "/" + e.path().filename().string(), e.path().string(), ""});
  std::ranges::sort(found, {}, &Sidecar::name);
  return found;
}

std::vector<Sidecar> sidecars_of(const std::string& tokenizer, bool translates) {
  if (fs::is_directory(tokenizer)) return sidecars_in(tokenizer);
  if (!fs::is_regular_file(tokenizer)) return {};
  if (!tokenizer.ends_with(".json"))
    return {{translates ? "spiece.model" : "tokenizer.model", tokenizer, ""}};
  return {{"tokenizer.json", tokenizer, ""},
          {"tokenizer_config.json", "", "{\"tokenizer_class\": \"PreTrainedTokenizerFast\"}\n"}};
}

bool has_tokenizer(const std::string& dir, const std::string& tokenizer) {
  const auto has = [&](const std::string& name, const std::string& source) {
    return fs::is_regular_file(dir + "/" + name) && same_contents(dir + "/" + name, source);
  };
  if (fs::is_directory(tokenizer)) {
    std::vector<Sidecar> files = sidecars_in(tokenizer);
    std::erase_if(files, [](const Sidecar& f) { return !is_tokenizer_file(f.name); });
    return !files.empty() &&
           std::ranges::all_of(files, [&](const auto& f) { return has(f.name, f.source); });
  }
  const std::string name = fs::path(tokenizer).filename().string();
  return fs::is_regular_file(tokenizer) &&
         (has(name, tokenizer) || has(sidecars_of(tokenizer, true)[0].name, tokenizer) ||
          has(sidecars_of(tokenizer, false)[0].name, tokenizer));
}

}  // namespace tfm::huggingface
