#pragma once
// Files of a Hugging Face directory.
#include <string>
#include <string_view>

namespace tfm::huggingface {

bool is_huggingface(const std::string& dir);  // has a config.json

bool is_weights_file(std::string_view file);  // model.safetensors, its shards and their index

// Copies tokenizer files and generation settings.
void copy_sidecars(const std::string& from, const std::string& to);

}  // namespace tfm::huggingface
