#include "huggingface/llama_like.h"

namespace tfm::huggingface {
namespace {

config::ModelConfig read(const io::JsonNode& c) {
  config::ModelConfig m{.family = "decoder", .position = "rope", .norm = "rmsnorm"};
  m.vocab_size = whole(c, "vocab_size", 32000);
  m.d_model = whole(c, "hidden_size", 4096), m.n_layers = layers(c, "num_hidden_layers", 32);
  m.n_heads = whole(c, "num_attention_heads", 32),
  m.n_kv_heads = whole(c, "num_key_value_heads", m.n_heads);
  if (m.n_heads > 0) m.d_head = whole(c, "head_dim", m.d_model / m.n_heads);
  m.d_ff = whole(c, "intermediate_size", 11008),
  m.max_seq_len = whole(c, "max_position_embeddings", 2048);
  m.activation = activation_of(c, "hidden_act", c.text("hidden_act", "silu"), true);
  m.norm_eps = real(c, "rms_norm_eps", 1e-6), m.init_std = real(c, "initializer_range", 0.02);
  m.bias = c.flag("attention_bias", false), m.head_bias = "false";
  if (m.bias != c.flag("mlp_bias", false))
    c.fail("attention_bias and mlp_bias differ; expected both or neither");
  m.dropout.attention = real(c, "attention_dropout", 0);
  llama_like::read_rope(c, m.rope);
  return m;
}

void write(Json& j, const config::ModelConfig& m) {
  llama_like::write(j, m);
  j["attention_bias"] = j["mlp_bias"] = m.bias;
}

}  // namespace

Architecture llama() {
  return {.name = "llama",
          .class_name = [](const config::ModelConfig&) { return std::string("LlamaForCausalLM"); },
          .read = read,
          .read_heads = llama_like::read_heads,
          .write = write,
          .computes = llama_like::computes,
          .tensors = llama_like::tensors,
          .original_of = llama_like::original_of,
          .is_buffer = llama_like::is_buffer};
}

}  // namespace tfm::huggingface
