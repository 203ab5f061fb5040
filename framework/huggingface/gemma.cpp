// Gemma 2 (Gemma Team 2024) and the decoder of Gemma 3 (Gemma Team 2025).
#include <nlohmann/json.hpp>

#include "huggingface/llama_like.h"
#include "huggingface/two_ropes.h"
#include "huggingface/windows.h"

namespace tfm::huggingface {
namespace {

constexpr const char *kActivation = "hidden_activation", *kScalar = "query_pre_attn_scalar",
                     *kScoreCap = "attn_logit_softcapping", *kLogitCap = "final_logit_softcapping",
                     *kPattern = "sliding_window_pattern";
constexpr Thetas kThetas{"rope_local_base_freq", "rope_theta", 1e4, 1e6};

// null: 0, no cap. `absent`: its value where it is not there.
double cap_in(const io::JsonNode& c, const char* key, double absent) {
  if (!has_member(c, key)) return absent;
  const auto given = c.find(key);
  if (given && !(given->number() > 0)) given->fail("expected a number > 0, or null");
  return given ? given->number() : 0;
}
MemberValue cap_member(double cap) { return cap > 0 ? MemberValue(cap) : MemberValue(nullptr); }

bool every_second(std::int64_t layer, std::int64_t) { return layer % 2 == 0; }
bool all_but_every(std::int64_t layer, std::int64_t pattern) { return (layer + 1) % pattern != 0; }
constexpr Sliding kSliding2{every_second, false}, kSliding3{all_but_every, false, kPattern, 6};

config::ModelConfig read_both(const io::JsonNode& c, std::int64_t vocab_size,
                              std::int64_t max_seq_len) {
  must_be(c, "use_bidirectional_attention", false);
  config::ModelConfig m = llama_like::read(c, {.vocab_size = vocab_size,
                                               .kv_heads = 4,
                                               .d_ff = 9216,
                                               .max_seq_len = max_seq_len,
                                               .head_dim = 256,
                                               .d_model = 2304,
                                               .layers = 26,
                                               .heads = 8,
                                               .activation_key = kActivation,
                                               .activation = "gelu_pytorch_tanh"});
  m.bias = c.flag("attention_bias", false);
  if (m.bias) m.ffn_bias = config::Switch::no;
  m.norm_position = config::NormPosition::both;
  m.norm_plus_one = true;
  m.scale_embeddings = config::ScaleEmbeddings::rounded;
  m.padding_idx = padding(c, m.vocab_size, 0);
  m.attention.query_scalar = whole(c, kScalar, 256);
  return m;
}

config::ModelConfig read2(const io::JsonNode& c) {
  config::ModelConfig m = read_both(c, 256000, 8192);
  m.attention.softcap = cap_in(c, kScoreCap, 50);
  m.softcap = cap_in(c, kLogitCap, 30);
  read_windows(m, c, kSliding2);
  return m;
}

config::ModelConfig read3(const io::JsonNode& c) {
  if (const auto cap = c.find(kScoreCap)) cap->fail("is not used by this model; expected null");
  if (whole(c, kPattern, 6) == 0) c.at(kPattern).fail("expected a whole number >= 1");
  config::ModelConfig m = read_both(c, 262208, 131072);
  m.softcap = cap_in(c, kLogitCap, 0);
  m.qk_norm = config::QkNorm::heads;
  read_windows(m, c, kSliding3);
  read_two_ropes(m, c, kThetas);
  return m;
}

void read_heads(config::ModelConfig& m, const io::JsonNode& c, const Has& has) {
  m.tie_embeddings =
      output_is_tied(c, true, has) ? config::TieEmbeddings::yes : config::TieEmbeddings::no;
}

void write_both(Json& j, const config::ModelConfig& m, const Sliding& sliding) {
  llama_like::write(j, m, kActivation);
  set(j, {{"attention_bias", m.bias},
          {kScalar, m.query_scalar()},
          {kScoreCap, cap_member(m.attention.softcap)},
          {kLogitCap, cap_member(m.softcap)}});
  write_windows(j, m, sliding);
}

void write2(Json& j, const config::ModelConfig& m) { write_both(j, m, kSliding2); }

void write3(Json& j, const config::ModelConfig& m) {
  const Json ropes = j.value("rope_parameters", Json());  // of which write_both() knows one
  write_both(j, m, kSliding3);
  j["rope_parameters"] = ropes;
  write_two_ropes(j, m, kThetas);
}

Needs needs_both(const config::ModelConfig& m) {
  return llama_like::decoder(m) +
         Needs{
             {m.norm_position == config::NormPosition::both, "norm_position: both"},
             {m.norm_plus_one, "norm_plus_one: true"},
             {m.scale_embeddings == config::ScaleEmbeddings::rounded, "scale_embeddings: rounded"},
             {m.has_qkv_bias() == m.bias, "qkv_bias: auto"},
             {!m.has_ffn_bias(), "ffn_bias: false"}};
}
Needs needs2(const config::ModelConfig& m) {
  return needs_both(m) + Needs{{m.qk_norm == config::QkNorm::none, "qk_norm: false"}};
}
Needs needs3(const config::ModelConfig& m) {
  return needs_both(m) + two_ropes(m) +
         Needs{{m.qk_norm == config::QkNorm::heads, "qk_norm: true"},
               {m.attention.softcap == 0, "attention: {softcap: 0}"}};
}

}  // namespace

Architecture gemma2() {
  Architecture a = llama_like::architecture(
      "gemma2", [](const config::ModelConfig&) { return std::string("Gemma2ForCausalLM"); }, read2,
      write2, needs2);
  a.read_heads = read_heads;
  a.windows = Windows::some;
  a.has = {Feature::gemma, Feature::norm_plus_one};
  return a;
}

Architecture gemma3_text() {
  Architecture a = llama_like::architecture(
      "gemma3_text", [](const config::ModelConfig&) { return std::string("Gemma3ForCausalLM"); },
      read3, write3, needs3);
  a.read_heads = read_heads;
  a.windows = Windows::some;
  a.has = {Feature::gemma, Feature::norm_plus_one};
  a.local_rope = true;
  a.headless = "Gemma3TextModel";  // Gemma3Model reads images
  return a;
}

}  // namespace tfm::huggingface
