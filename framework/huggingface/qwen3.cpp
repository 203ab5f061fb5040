#include "huggingface/llama_like.h"

namespace tfm::huggingface {
namespace {

config::ModelConfig read(const io::JsonNode& c) {
  llama_like::refuse_windows(c);
  must_be(c, "attention_bias", false);
  config::ModelConfig m = llama_like::read(c, {151936, 32, 22016, 32768, 128});
  m.qk_norm = true;
  return m;
}

void write(Json& j, const config::ModelConfig& m) {
  llama_like::write(j, m);
  set(j, {{"attention_bias", false}, {"use_sliding_window", false}});
}

Needs needs(const config::ModelConfig& m) {
  return llama_like::needs(m) + plain_ffn(m) +
         Needs{{!m.bias, "bias: false"},
               {!m.has_qkv_bias(), "qkv_bias: false"},
               {m.qk_norm, "qk_norm: true"}};
}

}  // namespace

Architecture qwen3() {
  return llama_like::architecture(
      "qwen3", [](const config::ModelConfig&) { return std::string("Qwen3ForCausalLM"); }, read,
      write, needs);
}

}  // namespace tfm::huggingface
