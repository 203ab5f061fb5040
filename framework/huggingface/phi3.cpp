// Phi-3 (Abdin et al. 2024): Llama with projections of one input in one tensor, positions in a part
// of each head, and LongRoPE.
#include <nlohmann/json.hpp>

#include "huggingface/llama_like.h"
#include "huggingface/windows.h"

namespace tfm::huggingface {
namespace {

constexpr const char* kPartial = "partial_rotary_factor";

std::vector<double> factors(const io::JsonNode& rope, const char* key) {
  std::vector<double> all;
  for (const io::JsonNode& x : rope.at(key).items()) {
    all.push_back(x.number());
    if (!(all.back() > 0)) x.fail("expected a number > 0");
  }
  return all;
}

config::ModelConfig read(const io::JsonNode& c) {
  config::ModelConfig m = llama_like::read(c, {.vocab_size = 32064,
                                               .kv_heads = 0,
                                               .d_ff = 8192,
                                               .max_seq_len = 4096,
                                               .d_model = 3072,
                                               .partial_rotary = true,
                                               .longrope = 4096});
  if (!has_member(c, "rms_norm_eps")) m.norm_eps = 1e-5;
  m.padding_idx = padding(c, m.vocab_size, 32000);
  m.dropout.residual = real(c, "resid_pdrop", 0);
  m.attention.window = window_in(c, 0);
  if (m.rope.scaling.type == config::RopeScalingType::longrope) {
    const io::JsonNode rope = llama_like::rope_of(c);
    m.longrope = {factors(rope, "short_factor"), factors(rope, "long_factor")};
  }
  return m;
}

// Adds what Phi-3 has to `rope`, which is rope_scaling or rope_parameters.
void write_more_of_rope(Json& rope, const Json& before, const config::ModelConfig& m) {
  const config::RopeScaling& s = m.rope.scaling;
  if (m.rope.fraction != 1 || contains(before, kPartial)) set(rope, {{kPartial, m.rope.fraction}});
  if (!s.on()) return;
  rope["short_factor"] = m.longrope.short_factor, rope["long_factor"] = m.longrope.long_factor;
  const double lengths =
      static_cast<double>(m.max_seq_len) / static_cast<double>(s.original_max_seq_len);
  if (s.factor == lengths && !contains(before, "factor")) rope.erase("factor");
}

void write(Json& j, const config::ModelConfig& m) {
  const Json before = j;
  llama_like::write(j, m);
  set(j, {{"resid_pdrop", m.dropout.residual}});
  if (m.rope.fraction != 1 || contains(j, kPartial)) set(j, {{kPartial, m.rope.fraction}});
  if (m.rope.scaling.on())
    set(j, {{"original_max_position_embeddings", m.rope.scaling.original_max_seq_len}});
  for (const char* key : {"rope_scaling", "rope_parameters"})
    if (contains(j, key) && !j[key].is_null())
      write_more_of_rope(j[key], before.value(key, Json()), m);
  write_window(j, m, 0);
}

Needs needs(const config::ModelConfig& m) {
  const config::RopeScaling& s = m.rope.scaling;
  return llama_like::needs(m) + plain_attention(m) + plain_ffn(m) +
         Needs{{!m.bias, "bias: false"},
               {m.d_head * m.n_heads == m.d_model, "d_head: d_model / n_heads"},
               {!s.on() || s.type == config::RopeScalingType::longrope,
                "rope: {scaling: {type: longrope}}"}};
}

void tensors(Table& t, const config::ModelConfig& m) {
  const std::int64_t C = m.d_model, q = m.n_heads * m.d_head, kv = m.n_kv_heads * m.d_head;
  t.tensor("model.embed_tokens.weight", {m.vocab_size, C}, "embedding.weight");
  for (std::int64_t l = 0; l < m.n_layers; ++l) {
    const std::string h = "model.layers." + std::to_string(l) + ".",
                      p = "layers." + std::to_string(l) + ".", a = p + "attention.", f = p + "ffn.";
    t.norm(h + "input_layernorm", p + "attention_norm");
    t.stacked(h + "self_attn.qkv_proj.weight", {q + 2 * kv, C},
              {a + "query.weight", a + "key.weight", a + "value.weight"}, {q, kv, kv});
    t.linear(h + "self_attn.o_proj", a + "output", C, q, false);
    t.norm(h + "post_attention_layernorm", p + "ffn_norm");
    t.stacked(h + "mlp.gate_up_proj.weight", {2 * m.d_ff, C}, {f + "gate.weight", f + "up.weight"},
              {m.d_ff, m.d_ff});
    t.linear(h + "mlp.down_proj", f + "down", C, m.d_ff, false);
  }
  t.norm("model.norm", "final_norm");
  if (!m.tied_head()) t.tensor("lm_head.weight", {m.vocab_size, C}, "head.weight");
}

}  // namespace

Architecture phi3() {
  Architecture a = llama_like::architecture(
      "phi3", [](const config::ModelConfig&) { return std::string("Phi3ForCausalLM"); }, read,
      write, needs);
  a.tensors = tensors;
  a.windows = Windows::alike;
  a.has = {Feature::partial_rotary, Feature::longrope};
  return a;
}

}  // namespace tfm::huggingface
