// Gemma 2 (Gemma Team 2024).
#include "huggingface/llama_like.h"
#include "huggingface/windows.h"

namespace tfm::huggingface {
namespace {

constexpr const char *kActivation = "hidden_activation", *kScalar = "query_pre_attn_scalar",
                     *kScoreCap = "attn_logit_softcapping", *kLogitCap = "final_logit_softcapping";

// null: 0, no cap. `absent`: its value where it is not there.
double cap_in(const io::JsonNode& c, const char* key, double absent) {
  if (!has_member(c, key)) return absent;
  const auto given = c.find(key);
  if (given && !(given->number() > 0)) given->fail("expected a number > 0, or null");
  return given ? given->number() : 0;
}
MemberValue cap_member(double cap) { return cap > 0 ? MemberValue(cap) : MemberValue(nullptr); }

bool every_second(std::int64_t layer, std::int64_t) { return layer % 2 == 0; }

config::ModelConfig read(const io::JsonNode& c) {
  must_be(c, "use_bidirectional_attention", false);
  config::ModelConfig m = llama_like::read(c, {.vocab_size = 256000,
                                               .kv_heads = 4,
                                               .d_ff = 9216,
                                               .max_seq_len = 8192,
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
  m.attention.softcap = cap_in(c, kScoreCap, 50);
  m.softcap = cap_in(c, kLogitCap, 30);
  read_windows(m, c, every_second, false);
  return m;
}

void read_heads(config::ModelConfig& m, const io::JsonNode& c, const Has& has) {
  m.tie_embeddings =
      output_is_tied(c, true, has) ? config::TieEmbeddings::yes : config::TieEmbeddings::no;
}

void write(Json& j, const config::ModelConfig& m) {
  llama_like::write(j, m, kActivation);
  set(j, {{"attention_bias", m.bias},
          {kScalar, m.query_scalar()},
          {kScoreCap, cap_member(m.attention.softcap)},
          {kLogitCap, cap_member(m.softcap)}});
  write_windows(j, m, every_second, false);
}

Needs needs(const config::ModelConfig& m) {
  return llama_like::decoder(m) +
         Needs{
             {m.norm_position == config::NormPosition::both, "norm_position: both"},
             {m.norm_plus_one, "norm_plus_one: true"},
             {m.scale_embeddings == config::ScaleEmbeddings::rounded, "scale_embeddings: rounded"},
             {m.qk_norm == config::QkNorm::none, "qk_norm: false"},
             {m.has_qkv_bias() == m.bias, "qkv_bias: auto"},
             {!m.has_ffn_bias(), "ffn_bias: false"}};
}

}  // namespace

Architecture gemma2() {
  Architecture a = llama_like::architecture(
      "gemma2", [](const config::ModelConfig&) { return std::string("Gemma2ForCausalLM"); }, read,
      write, needs);
  a.read_heads = read_heads;
  a.windows = Windows::some;
  a.gemma = true;
  return a;
}

}  // namespace tfm::huggingface
