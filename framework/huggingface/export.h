#pragma once
// Writes a Hugging Face directory.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "huggingface/tensors.h"
#include "tokenizer/tokenizer.h"

namespace tfm::huggingface {

// Writes the directory `dir`, which is created if missing: config.json; the weights in shards of at
// most 5 GB; and the sidecars, from the directory that the model came from, or from `beside` if
// that is gone, with the files of `tokenizer` (data.tokenizer) in place of that model's if it is
// another one. The weights have every tensor that the model came with: those used, copies of them,
// and unused ones unchanged; an unused one that is no longer found is reported on standard error,
// and so is one that F16 does not hold, which is written as F32. All is written before the first
// file of the directory is replaced; then old weights are removed. `ids`: the tokenizer's, if
// known. `part` gives whole parts. Error(input) if `provenance` is not from HuggingFaceModel.
void write_huggingface(const std::string& dir, const config::ModelConfig& model,
                       const std::optional<tokenizer::SpecialIds>& ids,
                       const std::string& provenance, const std::string& beside,
                       const std::string& tokenizer,
                       const std::function<std::vector<float>(const std::string& part)>& part);

// The model_type of the model that weights with this provenance came from; empty: none.
std::string original_type(const std::string& provenance);

// A tensor in Hugging Face's shape, composed of whole parts.
std::vector<float> compose(const ExchangedTensor& tensor,
                           const std::function<std::vector<float>(const std::string& part)>& part);

}  // namespace tfm::huggingface
