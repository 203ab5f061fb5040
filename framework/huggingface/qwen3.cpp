#include "huggingface/llama_like.h"
#include "huggingface/windows.h"

namespace tfm::huggingface {
namespace {

config::ModelConfig read(const io::JsonNode& c) {
  must_be(c, "attention_bias", false);
  config::ModelConfig m = llama_like::read(c, {151936, 32, 22016, 32768, 128});
  m.qk_norm = config::QkNorm::heads;
  read_windows(m, c, {slides_after});
  return m;
}

void write(Json& j, const config::ModelConfig& m) {
  llama_like::write(j, m);
  set(j, {{"attention_bias", false}});
  write_windows(j, m, {slides_after});
}

Needs needs(const config::ModelConfig& m) {
  return llama_like::needs(m) + plain_ffn(m) +
         Needs{{!m.bias, "bias: false"},
               {!m.has_qkv_bias(), "qkv_bias: false"},
               {m.qk_norm == config::QkNorm::heads, "qk_norm: true"}};
}

}  // namespace

Architecture qwen3() {
  Architecture a = llama_like::architecture(
      "qwen3", [](const config::ModelConfig&) { return std::string("Qwen3ForCausalLM"); }, read,
      write, needs);
  a.windows = Windows::some;
  return a;
}

}  // namespace tfm::huggingface
