#pragma once
// The files of a Hugging Face directory.
#include <string>
#include <string_view>

namespace tfm::huggingface {

bool is_huggingface(const std::string& dir);  // whether it has a config.json

bool is_weights_file(std::string_view file);  // model.safetensors, its shards or their index

// Copies the files besides config.json and weights: tokenizer, generation settings, preprocessor,
// chat template.
void copy_sidecars(const std::string& from, const std::string& to);

}  // namespace tfm::huggingface
