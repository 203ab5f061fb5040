#pragma once
// What RoBERTa and Longformer share: positions start behind those of padding, and the LM head has
// names of its own.
#include "huggingface/bert_like.h"

namespace tfm::huggingface::roberta_like {

config::ModelConfig read(const io::JsonNode& c, std::int64_t vocab_size);
void read_heads(config::ModelConfig& m, const io::JsonNode& c, const Has& has);
void write(Json& j, const config::ModelConfig& m);
Needs needs(const config::ModelConfig& m);
// `base`: the prefix of the base model's tensors ("roberta.").
void tensors(Table& t, const config::ModelConfig& m, const char* base);
std::vector<std::vector<std::string>> tied(const config::ModelConfig& m, const char* base);
bool is_buffer(const std::string& tensor, const std::string& base);

}  // namespace tfm::huggingface::roberta_like
