#include "huggingface/llama_like.h"

namespace tfm::huggingface {
namespace {

config::ModelConfig read(const io::JsonNode& c) {
  must_be(c, "rope_interleave", true);
  config::ModelConfig m = llama_like::read(c, {.vocab_size = 129280,
                                               .kv_heads = 0,
                                               .d_ff = 18432,
                                               .max_seq_len = 4096,
                                               .d_model = 7168,
                                               .layers = 61,
                                               .heads = 128});
  const io::JsonNode rope = llama_like::rope_of(c);
  if (const char* key = "mscale_all_dim"; m.rope.scaling.on() && real(rope, key, 0) != 0 &&
                                          m.rope.scaling.type != config::RopeScalingType::yarn)
    rope.at(key).fail("is supported with rope_type 'yarn' only; expected 0");
  m.attention.type = "latent";
  m.n_kv_heads = m.n_heads;
  const char* q_rank = "q_lora_rank";  // null: none
  m.attention.q_rank = has_member(c, q_rank) && !c.find(q_rank) ? 0 : whole(c, q_rank, 1536);
  m.attention.kv_rank = whole(c, "kv_lora_rank", 512);
  m.attention.rope_size = whole(c, "qk_rope_head_dim", 64);
  m.attention.value_size = whole(c, "v_head_dim", 128);
  m.d_head = m.attention.rope_size + whole(c, "qk_nope_head_dim", 128);
  const bool bias = c.flag("attention_bias", false);
  m.qkv_bias = bias ? config::Switch::yes : config::Switch::no;
  m.bias = bias, m.ffn_bias = config::Switch::no;
  config::ExpertsConfig& e = m.experts;
  e.count = whole(c, "n_routed_experts", 256, 65536);
  e.top_k = whole(c, "num_experts_per_tok", 8, 65536);
  e.d_ff = whole(c, "moe_intermediate_size", 2048);
  e.shared = whole(c, "n_shared_experts", 1, 65536);
  e.router = config::Router::sigmoid;
  e.normalize = c.flag("norm_topk_prob", true);
  e.scale = real(c, "routed_scaling_factor", 2.5);
  e.groups = whole(c, "n_group", 8, 65536), e.top_groups = whole(c, "topk_group", 4, 65536);
  m.expert_layers.first_dense = whole(c, "first_k_dense_replace", 3, 10000);
  m.router_loss.balance = config::Balance::bias;
  return m;
}

void write(Json& j, const config::ModelConfig& m) {
  config::ModelConfig named = m;
  named.d_head = m.attention.rope_size;
  llama_like::write(j, named);
  const config::ExpertsConfig& e = m.experts;
  if (m.attention.q_rank > 0)
    set(j, {{"q_lora_rank", m.attention.q_rank}});
  else
    set(j, {{"q_lora_rank", nullptr}});
  set(j, {{"kv_lora_rank", m.attention.kv_rank},
          {"qk_rope_head_dim", m.attention.rope_size},
          {"qk_nope_head_dim", m.d_head - m.attention.rope_size},
          {"v_head_dim", m.attention.value_size},
          {"attention_bias", m.has_qkv_bias()},
          {"rope_interleave", true},
          {"n_routed_experts", e.count},
          {"num_experts_per_tok", e.top_k},
          {"moe_intermediate_size", e.d_ff},
          {"n_shared_experts", e.shared},
          {"norm_topk_prob", e.normalize},
          {"routed_scaling_factor", e.scale},
          {"n_group", e.groups},
          {"topk_group", e.top_groups},
          {"first_k_dense_replace", m.expert_layers.first_dense}});
}

Needs needs(const config::ModelConfig& m) {
  const config::ExpertsConfig& e = m.experts;
  return llama_like::needs(m) +
         Needs{{m.layers_with_experts() > 0, "experts: {count: 8}"},
               {e.router == config::Router::sigmoid, "experts: {router: sigmoid}"},
               {m.router_loss.has_bias(), "experts: {balance: {type: bias}}"},
               {e.shared > 0 && e.shared_d_ff == e.shared * e.d_ff && !e.shared_gate,
                "experts: {shared: 1}"},
               {e.count % e.groups == 0 && e.count / e.groups > 1, "experts: {groups: 1}"},
               {m.expert_layers.every == 1, "experts: {every: 1}"},
               {m.qk_norm == config::QkNorm::none, "qk_norm: false"},
               {!m.has_ffn_bias(), "ffn_bias: false"},
               {m.bias == m.has_qkv_bias(), "qkv_bias: as bias"}};
}

void tensors(Table& t, const config::ModelConfig& m) {
  const std::int64_t C = m.d_model, H = m.n_heads;
  const config::AttentionConfig& a = m.attention;
  const std::int64_t plain = m.d_head - a.rope_size;
  const auto layers = m.stacks()[0];
  t.tensor("model.embed_tokens.weight", {m.vocab_size, C}, "embedding.weight");
  for (std::int64_t l = 0; l < m.n_layers; ++l) {
    const std::string h = "model.layers." + std::to_string(l) + ".",
                      p = "layers." + std::to_string(l) + ".", s = h + "self_attn.",
                      q = p + "attention.";
    t.tensor(h + "input_layernorm.weight", {C}, p + "attention_norm.weight");
    if (a.q_rank > 0) {
      t.linear(s + "q_a_proj", q + "query_down", a.q_rank, C, m.has_qkv_bias());
      t.tensor(s + "q_a_layernorm.weight", {a.q_rank}, q + "query_norm.weight");
      t.linear(s + "q_b_proj", q + "query", H * m.d_head, a.q_rank, false);
    } else {
      t.linear(s + "q_proj", q + "query", H * m.d_head, C, false);
    }
    const std::string down = s + "kv_a_proj_with_mqa";
    t.stacked(down + ".weight", {a.kv_rank + a.rope_size, C},
              {q + "latent.weight", q + "shared_key.weight"}, {a.kv_rank, a.rope_size});
    if (m.has_qkv_bias())
      t.stacked(down + ".bias", {a.kv_rank + a.rope_size},
                {q + "latent.bias", q + "shared_key.bias"}, {a.kv_rank, a.rope_size});
    t.tensor(s + "kv_a_layernorm.weight", {a.kv_rank}, q + "latent_norm.weight");
    t.tensor(s + "kv_b_proj.weight", {H * (plain + a.value_size), a.kv_rank},
             q + "key_value.weight");
    t.linear(s + "o_proj", q + "output", C, H * a.value_size, m.bias);
    t.tensor(h + "post_attention_layernorm.weight", {C}, p + "ffn_norm.weight");
    const config::ExpertsConfig& e = layers[static_cast<std::size_t>(l)].experts;
    if (e.count == 0) {
      t.gated_network(h + "mlp.", p + "ffn.", m.d_ff);
      continue;
    }
    t.tensor(h + "mlp.gate.weight", {e.count, C}, p + "ffn.router.weight");
    t.tensor(h + "mlp.gate.e_score_correction_bias", {e.count}, p + "ffn.router.load_bias");
    t.experts(h + "mlp.experts.", {"gate_proj", "up_proj", "down_proj"}, p + "ffn.experts.", e);
    t.gated_network(h + "mlp.shared_experts.", p + "ffn.shared.", e.shared_d_ff);
  }
  t.tensor("model.norm.weight", {C}, "final_norm.weight");
  if (!m.tied_head()) t.tensor("lm_head.weight", {m.vocab_size, C}, "head.weight");
}

}  // namespace

Architecture deepseek_v3() {
  Architecture a = llama_like::architecture(
      "deepseek_v3",
      [](const config::ModelConfig&) { return std::string("DeepseekV3ForCausalLM"); }, read, write,
      needs);
  a.tensors = tensors;
  a.has_experts = true;
  a.has = {Feature::load_bias};
  a.mixer = "latent";
  return a;
}

}  // namespace tfm::huggingface
