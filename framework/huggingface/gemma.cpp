// Gemma 2 (Gemma Team 2024) and the decoder of Gemma 3 (Gemma Team 2025).
#include <nlohmann/json.hpp>

#include "huggingface/llama_like.h"
#include "huggingface/windows.h"

namespace tfm::huggingface {
namespace {

constexpr const char *kActivation = "hidden_activation", *kScalar = "query_pre_attn_scalar",
                     *kScoreCap = "attn_logit_softcapping", *kLogitCap = "final_logit_softcapping",
                     *kPattern = "sliding_window_pattern", *kLocal = "sliding_attention",
                     *kGlobal = "full_attention", *kLocalTheta = "rope_local_base_freq";

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

// The RoPE of layers with a window (local) and of the others. A rope_scaling is that of the latter.
config::RopeConfig rope_of(const io::JsonNode& c, std::int64_t max_seq_len, bool local) {
  const Json none = Json::object();
  const io::JsonNode empty(none, "config.json");
  const auto all = c.find("rope_parameters"),
             own = all ? all->find(local ? kLocal : kGlobal) : std::nullopt;
  const io::JsonNode& given = own ? *own : empty;
  const double theta = real(c, local ? kLocalTheta : "rope_theta", local ? 1e4 : 1e6);
  const auto scaling = local ? std::nullopt : c.find("rope_scaling");
  if (!scaling || scaling->members().empty())
    return llama_like::rope_in(given, empty, max_seq_len, theta);
  return llama_like::rope_in(*scaling, empty, max_seq_len, real(given, "rope_theta", theta));
}

config::ModelConfig read3(const io::JsonNode& c) {
  if (const auto cap = c.find(kScoreCap)) cap->fail("is not used by this model; expected null");
  if (whole(c, kPattern, 6) == 0) c.at(kPattern).fail("expected a whole number >= 1");
  config::ModelConfig m = read_both(c, 262208, 131072);
  m.softcap = cap_in(c, kLogitCap, 0);
  m.qk_norm = config::QkNorm::heads;
  const config::RopeConfig local = rope_of(c, m.max_seq_len, true);
  m.rope = rope_of(c, m.max_seq_len, false);
  read_windows(m, c, kSliding3);
  m.for_each_kind([&](config::LayerConfig& l) {
    if (l.attention.window > 0) l.rope = local;
  });
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

// What the first layer with a window, or without one, has; none: there is no such layer.
std::optional<config::RopeConfig> rope_of(const config::ModelConfig& m, bool local) {
  const auto stacks = m.stacks();
  for (const config::LayerConfig& l : stacks[0])
    if ((l.attention.window > 0) == local) return l.rope;
  return {};
}

// Members of layers that the model has not are kept.
void write3(Json& j, const config::ModelConfig& m) {
  const auto before = j.find("rope_parameters");
  Json all = before != j.end() && before->is_object() ? *before : Json::object();
  write_both(j, m, kSliding3);
  set(j, {{"rope_scaling", nullptr}});
  for (const bool local : {false, true}) {
    const auto rope = rope_of(m, local);
    if (!rope) continue;
    set(j, {{local ? kLocalTheta : "rope_theta", rope->theta}});
    if (rope->scaling.factor != 1) llama_like::write_rope(set_object(j, "rope_scaling"), *rope);
    Json& given = set_object(all, local ? kLocal : kGlobal);
    llama_like::write_rope(given, *rope);
    set(given, {{"rope_theta", rope->theta}});
  }
  j["rope_parameters"] = all;
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
  const auto stacks = m.stacks();
  const auto local = rope_of(m, true);
  bool ropes = !local || local->scaling.factor == 1;
  for (const config::LayerConfig& l : stacks[0])
    ropes &= l.rope == rope_of(m, l.attention.window > 0);
  return needs_both(m) +
         Needs{{m.qk_norm == config::QkNorm::heads, "qk_norm: true"},
               {m.attention.softcap == 0, "attention: {softcap: 0}"},
               {ropes, "one rope of layers with a window, without scaling, and one of the others"}};
}

}  // namespace

Architecture gemma2() {
  Architecture a = llama_like::architecture(
      "gemma2", [](const config::ModelConfig&) { return std::string("Gemma2ForCausalLM"); }, read2,
      write2, needs2);
  a.read_heads = read_heads;
  a.windows = Windows::some;
  a.gemma = true;
  return a;
}

Architecture gemma3_text() {
  Architecture a = llama_like::architecture(
      "gemma3_text", [](const config::ModelConfig&) { return std::string("Gemma3ForCausalLM"); },
      read3, write3, needs3);
  a.read_heads = read_heads;
  a.windows = Windows::some;
  a.gemma = a.local_rope = true;
  return a;
}

}  // namespace tfm::huggingface
