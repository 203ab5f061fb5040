#include "huggingface/llama_like.h"
#include "huggingface/windows.h"

namespace tfm::huggingface {
namespace {

config::ModelConfig read(const io::JsonNode& c) {
  config::ModelConfig m = llama_like::read(c, {32000, 8, 14336, 131072});
  if (!has_member(c, "rope_theta") && !has_member(c, "rope_parameters")) m.rope.theta = 1e6;
  if (!has_member(c, "rms_norm_eps")) m.norm_eps = 1e-5;
  if (const char* noise = "router_jitter_noise"; real(c, noise, 0) != 0)
    c.at(noise).fail("noise of routers is not supported; expected 0");
  llama_like::read_experts(m, c, "num_local_experts", 8, 2);
  m.experts.d_ff = m.d_ff;
  m.attention.window = window_in(c, 0);
  return m;
}

void write(Json& j, const config::ModelConfig& m) {
  config::ModelConfig named = m;  // the width of experts has the name of a layer's
  named.d_ff = m.experts.d_ff;
  llama_like::write(j, named);
  llama_like::write_experts(j, m, "num_local_experts");
  write_window(j, m, 0);
}

Needs needs(const config::ModelConfig& m) {
  const config::ExpertsConfig& e = m.experts;
  return llama_like::needs(m) + llama_like::some_experts(m) + plain_attention(m) + plain_ffn(m) +
         Needs{{!m.bias, "bias: false"},
               {e.normalize || e.top_k == 1, "experts: {normalize: true}"},
               {e.shared == 0, "experts: {shared: 0}"},
               {m.layers_with_experts() == m.n_layers, "experts: {every: 1, first_dense: 0}"}};
}

void tensors(Table& t, const config::ModelConfig& m) {
  llama_like::tensors(t, m, {"block_sparse_moe.", {"w1", "w3", "w2"}});
}

}  // namespace

Architecture mixtral() {
  Architecture a = llama_like::architecture(
      "mixtral", [](const config::ModelConfig&) { return std::string("MixtralForCausalLM"); }, read,
      write, needs);
  a.tensors = tensors;
  a.windows = Windows::alike;
  a.has_experts = true;
  return a;
}

}  // namespace tfm::huggingface
