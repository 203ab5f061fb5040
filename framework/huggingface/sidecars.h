#pragma once
// The files of a Hugging Face directory.
#include <string>
#include <string_view>
#include <vector>

namespace tfm::huggingface {

bool is_huggingface(const std::string& dir);  // whether it has a config.json

bool is_weights_file(std::string_view file);  // model.safetensors, its shards or their index

// A file besides config.json and weights: tokenizer, generation settings, preprocessor, chat
// template. A copy of the file `source`, or without one `text`.
struct Sidecar {
  std::string name, source, text;
};
bool is_tokenizer_file(std::string_view file);
std::vector<Sidecar> sidecars_in(const std::string& dir);
// Those of a tokenizer (data.tokenizer) under the names that transformers expects; none of bytes.
// `translates`: whether its model does.
std::vector<Sidecar> sidecars_of(const std::string& tokenizer, bool translates);
// Whether `dir` has the same tokenizer.
bool has_tokenizer(const std::string& dir, const std::string& tokenizer);

}  // namespace tfm::huggingface
