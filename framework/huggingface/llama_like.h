#pragma once
// What the descendants of Llama share: decoders with rotary positions, RMSNorm and gated
// feed-forward networks.
#include "huggingface/architecture.h"

namespace tfm::huggingface::llama_like {

struct Defaults {
  std::int64_t vocab_size, kv_heads, d_ff, max_seq_len;  // kv_heads 0: as many as heads
  std::int64_t head_dim = 0;                             // 0: d_model / n_heads
  std::int64_t d_model = 4096, layers = 32, heads = 32;
  // The member that names the activation, and its value.
  const char *activation_key = "hidden_act", *activation = "silu";
  double theta = 10000;
  bool partial_rotary = false;  // may be asked for
  // RoPE scaling is of type longrope, with this original length; 0: another type.
  std::int64_t longrope = 0;
};
// Reads everything except biases.
config::ModelConfig read(const io::JsonNode& c, const Defaults& defaults);
void write(Json& j, const config::ModelConfig& m, const char* activation_key = "hidden_act");
// The object that says what RoPE is: of several or none, as transformers.
io::JsonNode rope_of(const io::JsonNode& c);
// RoPE as the object `given` says it; `beside`: config.json.
config::RopeConfig rope_in(const io::JsonNode& given, const io::JsonNode& beside,
                           const Defaults& defaults);
// Writes the member `key` of an object, which is new. Members that say what is so anyway are left
// out, unless it had them before.
Json& write_rope(Json& object, const char* key, const config::RopeConfig& rope);
// Except biases and norms of heads; decoder: and where norms are, and what scales embeddings.
Needs needs(const config::ModelConfig& m);
Needs decoder(const config::ModelConfig& m);
// The tensors of layers with experts: `block` is their feed-forward part.
struct ExpertNames {
  const char* block;  // "mlp."
  Table::ExpertNames networks;
};
void tensors(Table& table, const config::ModelConfig& m, const ExpertNames& names);
// What all architectures with experts read and write of them.
void read_experts(config::ModelConfig& m, const io::JsonNode& c, const char* count,
                  std::int64_t default_count, std::int64_t default_top_k);
void write_experts(Json& j, const config::ModelConfig& m, const char* count);
// What all architectures with experts need of them.
Needs some_experts(const config::ModelConfig& m);
// An architecture whose heads, tensors and buffers are Llama's.
Architecture architecture(const char* name, decltype(Architecture::class_name) class_name,
                          decltype(Architecture::read) read, decltype(Architecture::write) write,
                          decltype(Architecture::needs) needs);

}  // namespace tfm::huggingface::llama_like
