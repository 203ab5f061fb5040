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

bool computes(const config::ModelConfig& m) {
  return llama_like::computes(m) && !m.bias && m.has_qkv_bias() && !m.qk_norm;
}

}  // namespace

Architecture qwen2() {
  return llama_like::architecture(
      "qwen2", [](const config::ModelConfig&) { return std::string("Qwen2ForCausalLM"); }, read,
      write, computes);
}

}  // namespace tfm::huggingface
