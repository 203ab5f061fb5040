#include "huggingface/llama_like.h"
#include "huggingface/windows.h"

namespace tfm::huggingface {
namespace {

config::ModelConfig read(const io::JsonNode& c) {
  config::ModelConfig m = llama_like::read(c, {151936, 32, 22016, 32768});
  m.qkv_bias = config::Switch::yes;
  read_windows(m, c, {slides_after});
  return m;
}

void write(Json& j, const config::ModelConfig& m) {
  llama_like::write(j, m);
  write_windows(j, m, {slides_after});
}

Needs needs(const config::ModelConfig& m) {
  return llama_like::needs(m) + plain_ffn(m) +
         Needs{{!m.bias, "bias: false"},
               {m.has_qkv_bias(), "qkv_bias: true"},
               {m.qk_norm == config::QkNorm::none, "qk_norm: false"}};
}

}  // namespace

Architecture qwen2() {
  Architecture a = llama_like::architecture(
      "qwen2", [](const config::ModelConfig&) { return std::string("Qwen2ForCausalLM"); }, read,
      write, needs);
  a.windows = Windows::some;
  return a;
}

}  // namespace tfm::huggingface
