#pragma once
// Writes a Hugging Face directory.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "huggingface/tensors.h"
#include "tokenizer/tokenizer.h"

namespace tfm::huggingface {

// Writes DIR (made where it is not there): config.json, the weights in shards of at most 5 GB
// (every tensor that the model came with: what is used, copies of it, and what is not used, as it
// was), and the tokenizer's files of the directory it came from, or of `beside` where that is gone.
// What is not found any more is told on standard error. `ids`: of the tokenizer, where it is known.
// `part` gives whole parts. Old weights of DIR are removed. Error(input) where `provenance` is not
// HuggingFaceModel's.
void write_huggingface(const std::string& dir, const config::ModelConfig& model,
                       const std::optional<tokenizer::SpecialIds>& ids,
                       const std::string& provenance, const std::string& beside,
                       const std::function<std::vector<float>(const std::string& part)>& part);

// The tensors as Hugging Face shapes them, from whole parts.
std::vector<float> compose(const ExchangedTensor& tensor,
                           const std::function<std::vector<float>(const std::string& part)>& part);

}  // namespace tfm::huggingface
