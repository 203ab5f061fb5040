#include "huggingface/llama_like.h"
#include "huggingface/windows.h"

namespace tfm::huggingface {
namespace {

constexpr std::int64_t kWindow = 4096;  // of a config.json that has none

config::ModelConfig read(const io::JsonNode& c) {
  config::ModelConfig m = llama_like::read(c, {32000, 8, 14336, 131072});
  m.attention.window = window_in(c, kWindow);
  return m;
}

void write(Json& j, const config::ModelConfig& m) {
  llama_like::write(j, m);
  write_window(j, m, kWindow);
}

Needs needs(const config::ModelConfig& m) {
  return llama_like::needs(m) + Needs{{!m.bias, "bias: false"}} + plain_attention(m) + plain_ffn(m);
}

}  // namespace

Architecture mistral() {
  Architecture a = llama_like::architecture(
      "mistral", [](const config::ModelConfig&) { return std::string("MistralForCausalLM"); }, read,
      write, needs);
  a.windows = Windows::alike;
  return a;
}

}  // namespace tfm::huggingface
