#pragma once
// Decoders with rotary positions, RMSNorm and gated feed-forward networks: what Llama's descendants
// share.
#include "huggingface/architecture.h"

namespace tfm::huggingface::llama_like {

void read_rope(const io::JsonNode& c, config::RopeConfig& rope);
void read_heads(config::ModelConfig& m, const io::JsonNode& c, const Has& has);
void write(Json& j, const config::ModelConfig& m);
bool computes(const config::ModelConfig& m);  // but for biases
void tensors(Table& t, const config::ModelConfig& m);
std::string original_of(const std::string& tensor);
bool is_buffer(const std::string& tensor);

}  // namespace tfm::huggingface::llama_like
