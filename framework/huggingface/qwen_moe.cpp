// Qwen 2-MoE and 3-MoE: Qwen 2 and 3 with experts in some layers.
#include "huggingface/llama_like.h"
#include "huggingface/windows.h"

namespace tfm::huggingface {
namespace {

config::ModelConfig read_both(const io::JsonNode& c, const llama_like::Defaults& defaults,
                              std::int64_t experts, std::int64_t top_k, std::int64_t d_ff) {
  config::ModelConfig m = llama_like::read(c, defaults);
  const char* count = has_member(c, "num_experts") ? "num_experts" : "num_local_experts";
  llama_like::read_experts(m, c, count, experts, top_k);
  m.experts.d_ff = whole(c, "moe_intermediate_size", d_ff);
  m.experts.normalize = c.flag("norm_topk_prob", false);
  m.expert_layers.every = whole(c, "decoder_sparse_step", 1, 10000);
  if (const auto dense = c.find("mlp_only_layers"))
    if (!dense->items().empty())
      dense->fail("layers without experts are not supported here; expected []");
  return m;
}

void write_both(Json& j, const config::ModelConfig& m) {
  llama_like::write(j, m);
  llama_like::write_experts(j, m,
                            contains(j, "num_local_experts") ? "num_local_experts" : "num_experts");
  set(j, {{"moe_intermediate_size", m.experts.d_ff},
          {"norm_topk_prob", m.experts.normalize},
          {"decoder_sparse_step", m.expert_layers.every}});
}

Needs needs_both(const config::ModelConfig& m) {
  return llama_like::needs(m) + llama_like::some_experts(m) + plain_ffn(m) +
         Needs{{!m.bias, "bias: false"},
               {m.expert_layers.first_dense == 0, "experts: {first_dense: 0}"}};
}

// Of Qwen 2-MoE, every second layer has a window, up to max_window_layers.
bool slides2(std::int64_t layer, std::int64_t max_window_layers) {
  return layer % 2 == 0 && layer < max_window_layers;
}
bool slides3(std::int64_t, std::int64_t) { return true; }

config::ModelConfig read2(const io::JsonNode& c) {
  config::ModelConfig m = read_both(c,
                                    {.vocab_size = 151936,
                                     .kv_heads = 16,
                                     .d_ff = 5632,
                                     .max_seq_len = 32768,
                                     .d_model = 2048,
                                     .layers = 24,
                                     .heads = 16},
                                    60, 4, 1408);
  m.qkv_bias = c.flag("qkv_bias", true) ? config::Switch::yes : config::Switch::no;
  m.experts.shared = 1;
  m.experts.shared_d_ff = whole(c, "shared_expert_intermediate_size", 5632);
  m.experts.shared_gate = true;
  read_windows(m, c, {slides2});
  return m;
}

void write2(Json& j, const config::ModelConfig& m) {
  write_both(j, m);
  write_windows(j, m, {slides2});
  set(j,
      {{"shared_expert_intermediate_size", m.experts.shared_d_ff}, {"qkv_bias", m.has_qkv_bias()}});
}

Needs needs2(const config::ModelConfig& m) {
  return needs_both(m) + Needs{{m.experts.shared_gate, "experts: {shared: 1, shared_gate: true}"},
                               {m.qk_norm == config::QkNorm::none, "qk_norm: false"}};
}

config::ModelConfig read3(const io::JsonNode& c) {
  must_be(c, "attention_bias", false);
  config::ModelConfig m = read_both(c,
                                    {.vocab_size = 151936,
                                     .kv_heads = 4,
                                     .d_ff = 6144,
                                     .max_seq_len = 32768,
                                     .d_model = 2048,
                                     .layers = 24},
                                    128, 8, 768);
  m.qk_norm = config::QkNorm::heads;
  read_windows(m, c, {slides3});
  if (const auto types = c.find("layer_types"))  // which transformers does not read here
    if (m.attention.window == 0 && c.flag("use_sliding_window", false) &&
        has_member(c, "sliding_window"))
      types->fail(
          "layers without a window are not supported here; expected only 'sliding_attention'");
  return m;
}

void write3(Json& j, const config::ModelConfig& m) {
  write_both(j, m);
  set(j, {{"attention_bias", false}});
  write_windows(j, m, {slides3});
}

Needs needs3(const config::ModelConfig& m) {
  return needs_both(m) + Needs{{m.experts.shared == 0, "experts: {shared: 0}"},
                               {!m.has_qkv_bias(), "qkv_bias: false"},
                               {m.qk_norm == config::QkNorm::heads, "qk_norm: true"}};
}

void tensors(Table& t, const config::ModelConfig& m) {
  llama_like::tensors(t, m, {"mlp.", {"gate_proj", "up_proj", "down_proj"}});
}

}  // namespace

Architecture qwen2_moe() {
  Architecture a = llama_like::architecture(
      "qwen2_moe", [](const config::ModelConfig&) { return std::string("Qwen2MoeForCausalLM"); },
      read2, write2, needs2);
  a.tensors = tensors;
  a.windows = Windows::some;
  a.has_experts = true;
  return a;
}

Architecture qwen3_moe() {
  Architecture a = llama_like::architecture(
      "qwen3_moe", [](const config::ModelConfig&) { return std::string("Qwen3MoeForCausalLM"); },
      read3, write3, needs3);
  a.tensors = tensors;
  a.windows = Windows::alike;
  a.has_experts = true;
  return a;
}

}  // namespace tfm::huggingface
