#pragma once
// Directories of Sentence Transformers: modules.json lists an encoder, in the directory itself, how
// its hidden states are pooled, and perhaps a normalization. Together they are a head of type
// embed.
#include <optional>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "huggingface/sidecars.h"

namespace tfm::huggingface {

// The head of a directory that has a modules.json. Error(input) names a module or a way of pooling
// that is not supported.
std::optional<config::HeadConfig> sentence_head(const std::string& dir);
// The most tokens of a text, its first ones, that an encoder reads (sentence_bert_config.json).
std::optional<std::int64_t> sentence_length(const std::string& dir);
// What an export has besides the encoder.
std::vector<Sidecar> sentence_files(const config::ModelConfig& model);

}  // namespace tfm::huggingface
