#include "huggingface/llama_like.h"

namespace tfm::huggingface {
namespace {

config::ModelConfig read(const io::JsonNode& c) {
  config::ModelConfig m = llama_like::read(c, {50304, 0, 11008, 2048});
  m.bias = c.flag("attention_bias", false);
  if (m.bias) m.ffn_bias = config::Switch::no;
  m.norm_position = config::NormPosition::inner;
  m.qk_norm = config::QkNorm::whole;
  if (!has_member(c, "rms_norm_eps")) m.norm_eps = 1e-5;
  m.padding_idx = padding(c, m.vocab_size, 1);
  return m;
}

void write(Json& j, const config::ModelConfig& m) {
  llama_like::write(j, m);
  set(j, {{"attention_bias", m.bias}});
}

Needs needs(const config::ModelConfig& m) {
  return llama_like::decoder(m) +
         Needs{{m.norm_position == config::NormPosition::inner, "norm_position: inner"},
               {m.qk_norm == config::QkNorm::whole, "qk_norm: whole"},
               {m.scale_embeddings == config::ScaleEmbeddings::no, "scale_embeddings: false"},
               {m.has_qkv_bias() == m.bias, "qkv_bias: auto"},
               {!m.has_ffn_bias(), "ffn_bias: false"}};
}

}  // namespace

Architecture olmo2() {
  return llama_like::architecture(
      "olmo2", [](const config::ModelConfig&) { return std::string("Olmo2ForCausalLM"); }, read,
      write, needs);
}

}  // namespace tfm::huggingface
