#include "huggingface/llama_like.h"

namespace tfm::huggingface {
namespace {

config::ModelConfig read(const io::JsonNode& c) {
  config::ModelConfig m = llama_like::read(c, {32000, 0, 11008, 2048});
  m.bias = c.flag("attention_bias", false);
  if (const bool ffn = c.flag("mlp_bias", false); ffn != m.bias)
    m.ffn_bias = ffn ? config::Switch::yes : config::Switch::no;
  return m;
}

void write(Json& j, const config::ModelConfig& m) {
  llama_like::write(j, m);
  set(j, {{"attention_bias", m.bias}, {"mlp_bias", m.has_ffn_bias()}});
}

Needs needs(const config::ModelConfig& m) { return llama_like::needs(m) + plain_attention(m); }

}  // namespace

Architecture llama() {
  return llama_like::architecture(
      "llama", [](const config::ModelConfig&) { return std::string("LlamaForCausalLM"); }, read,
      write, needs);
}

}  // namespace tfm::huggingface
