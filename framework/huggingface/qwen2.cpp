#include "huggingface/llama_like.h"

namespace tfm::huggingface {
namespace {

config::ModelConfig read(const io::JsonNode& c) {
  llama_like::refuse_windows(c);
  config::ModelConfig m = llama_like::read(c, {151936, 32, 22016, 32768});
  m.qkv_bias = config::Switch::yes;
  return m;
}

void write(Json& j, const config::ModelConfig& m) {
  llama_like::write(j, m);
  set(j, {{"use_sliding_window", false}});
}

Needs needs(const config::ModelConfig& m) {
  return llama_like::needs(m) + plain_ffn(m) +
         Needs{{!m.bias, "bias: false"},
               {m.has_qkv_bias(), "qkv_bias: true"},
               {!m.qk_norm, "qk_norm: false"}};
}

}  // namespace

Architecture qwen2() {
  return llama_like::architecture(
      "qwen2", [](const config::ModelConfig&) { return std::string("Qwen2ForCausalLM"); }, read,
      write, needs);
}

}  // namespace tfm::huggingface
