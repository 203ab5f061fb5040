#include "huggingface/llama_like.h"

namespace tfm::huggingface::llama_like {

void read_rope(const io::JsonNode& c, config::RopeConfig& rope) {
  const auto parameters = c.find("rope_parameters"),
             scaling = parameters ? parameters : c.find("rope_scaling");
  rope.theta = parameters ? real(*parameters, "rope_theta", real(c, "rope_theta", 10000))
                          : real(c, "rope_theta", 10000);
  if (!scaling) return;
  const std::string type = scaling->text("rope_type", scaling->text("type", "default"));
  if (type == "default") return;
  if (type != "llama3")
    scaling->fail("the RoPE scaling '" + type + "' is not supported; expected default or llama3");
  rope.scaling = {scaling->at("factor").number(), scaling->at("low_freq_factor").number(),
                  scaling->at("high_freq_factor").number(),
                  whole(*scaling, "original_max_position_embeddings")};
}

void read_heads(config::ModelConfig& m, const io::JsonNode& c, const Has& has) {
  m.tie_embeddings = output_is_tied(c, false, has) ? "true" : "false";
}

void write(Json& j, const config::ModelConfig& m) {
  j.update({{"hidden_size", m.d_model},
            {"num_hidden_layers", m.n_layers},
            {"num_attention_heads", m.n_heads},
            {"num_key_value_heads", m.n_kv_heads},
            {"head_dim", m.d_head},
            {"intermediate_size", m.d_ff},
            {"max_position_embeddings", m.max_seq_len},
            {"hidden_act", activation_name(j, "hidden_act", m.activation)},
            {"rms_norm_eps", m.norm_eps},
            {"attention_dropout", m.dropout.attention},
            {"initializer_range", m.init_std},
            {"rope_theta", m.rope.theta}});
  const config::RopeScaling& s = m.rope.scaling;
  Json rope{{"rope_type", s.factor == 1 ? "default" : "llama3"}};
  if (s.factor != 1)
    rope.update({{"factor", s.factor},
                 {"low_freq_factor", s.low_freq_factor},
                 {"high_freq_factor", s.high_freq_factor},
                 {"original_max_position_embeddings", s.original_max_seq_len}});
  j["rope_scaling"] = s.factor == 1 ? Json() : rope;
  rope["rope_theta"] = m.rope.theta;
  j["rope_parameters"] = rope;
}

bool computes(const config::ModelConfig& m) {
  return m.family == "decoder" && m.position == "rope" && m.norm_position == "pre" &&
         m.norm == "rmsnorm" && m.gated() && m.scale_attention && !m.scale_embeddings &&
         !m.embedding_norm && !m.scale_logits && !m.has_head_bias();
}

void tensors(Table& t, const config::ModelConfig& m) {
  const std::int64_t C = m.d_model;
  t.tensor("model.embed_tokens.weight", {m.vocab_size, C}, "embedding.weight");
  for (std::int64_t l = 0; l < m.n_layers; ++l) {
    const std::string h = "model.layers." + std::to_string(l) + ".",
                      p = "layers." + std::to_string(l) + ".";
    t.norm(h + "input_layernorm", p + "attention_norm");
    t.attention(h + "self_attn.", {"q_proj", "k_proj", "v_proj", "o_proj"}, p + "attention");
    t.norm(h + "post_attention_layernorm", p + "ffn_norm");
    t.linear(h + "mlp.gate_proj", p + "ffn.gate", m.d_ff, C, m.bias);
    t.linear(h + "mlp.up_proj", p + "ffn.up", m.d_ff, C, m.bias);
    t.linear(h + "mlp.down_proj", p + "ffn.down", C, m.d_ff, m.bias);
  }
  t.norm("model.norm", "final_norm");
  if (!m.tied_head()) t.tensor("lm_head.weight", {m.vocab_size, C}, "head.weight");
}

std::string original_of(const std::string& tensor) {
  return tensor == "lm_head.weight" ? "model.embed_tokens.weight" : "";
}

bool is_buffer(const std::string& tensor) { return matches(tensor, R"(.*\.rotary_emb\.inv_freq)"); }

}  // namespace tfm::huggingface::llama_like
