// ModernBERT (Warner et al. 2024): an encoder of gated networks, windows in two of three layers,
// and rotary positions of another theta there; the attention of its first layer has no norm before
// it.
#include "huggingface/two_ropes.h"
#include "huggingface/windows.h"

namespace tfm::huggingface {
namespace {

constexpr const char *kEvery = "global_attn_every_n_layers", *kWindow = "local_attention",
                     *kHead = "decoder.", *kTable = "model.embeddings.tok_embeddings.weight";

bool slides(std::int64_t layer, std::int64_t every) { return layer % every != 0; }
constexpr Sliding kSliding{.slides = slides,
                           .if_used = false,
                           .number = kEvery,
                           .absent = 3,
                           .window = 128,
                           .key = kWindow,
                           .first_norm = false};
constexpr Thetas kThetas{"local_rope_theta", "global_rope_theta", 1e4, 160000};

config::ModelConfig read(const io::JsonNode& c) {
  for (const char* key :
       {"norm_bias", "attention_bias", "mlp_bias", "classifier_bias", "sparse_prediction"})
    must_be(c, key, false);
  if (const char* key = "attention_dropout"; real(c, key, 0) != 0)
    c.at(key).fail("is that of an output, too, here; expected 0");
  if (whole(c, kEvery, 3) == 0) c.at(kEvery).fail("expected a whole number >= 1");
  config::ModelConfig m;
  m.family = config::Family::encoder;
  m.position = config::Position::rope;
  m.embedding_norm = m.head_transform = true;
  m.bias = false;
  m.vocab_size = whole(c, "vocab_size", 50368);
  m.d_model = whole(c, "hidden_size", 768), m.n_layers = layers(c, "num_hidden_layers", 22);
  m.n_heads = whole(c, "num_attention_heads", 12);
  m.d_ff = whole(c, "intermediate_size", 1152);
  m.max_seq_len = whole(c, "max_position_embeddings", 8192);
  m.padding_idx = padding(c, m.vocab_size, 50283);
  const std::string act = c.text("hidden_activation", "gelu");
  m.activation = activation_of(c, "hidden_activation", act, true);
  if (c.text("classifier_activation", "gelu") != act)
    c.at("classifier_activation").fail("differs from hidden_activation; expected '" + act + "'");
  m.norm_eps = real(c, "norm_eps", 1e-5), m.init_std = real(c, "initializer_range", 0.02);
  m.head_bias = c.flag("decoder_bias", true) ? config::HeadBias::yes : config::HeadBias::no;
  m.dropout.embedding = real(c, "embedding_dropout", 0);
  m.dropout.ffn = real(c, "mlp_dropout", 0);
  if (const auto scaling = c.find("rope_scaling"))
    scaling->fail("one scaling of both kinds of layers is not supported; expected null");
  read_windows(m, c, kSliding);
  read_two_ropes(m, c, kThetas);
  return m;
}

void read_heads(config::ModelConfig& m, const io::JsonNode& c, const Has& has) {
  m.tie_embeddings = output_is_tied(c, true, has, "decoder.weight") ? config::TieEmbeddings::yes
                                                                    : config::TieEmbeddings::no;
}

void write(Json& j, const config::ModelConfig& m) {
  const std::string act = activation_name(j, "hidden_activation", m.activation);
  set(j, {{"hidden_size", m.d_model},
          {"num_hidden_layers", m.n_layers},
          {"num_attention_heads", m.n_heads},
          {"intermediate_size", m.d_ff},
          {"max_position_embeddings", m.max_seq_len},
          {"hidden_activation", act},
          {"classifier_activation", act},
          {"norm_eps", m.norm_eps},
          {"initializer_range", m.init_std},
          {"decoder_bias", m.has_head_bias()},
          {"embedding_dropout", m.dropout.embedding},
          {"mlp_dropout", m.dropout.ffn}});
  write_windows(j, m, kSliding);
  write_two_ropes(j, m, kThetas);
  set(j, {{"rope_scaling", nullptr}});  // here of both kinds of layers; rope_parameters says all
}

Needs needs(const config::ModelConfig& m) {
  const auto stack = m.stacks()[0];
  const bool lm = m.head_of_type("lm");
  bool norms = !stack.front().attention_norm;
  for (std::size_t l = 1; l < stack.size(); ++l) norms &= stack[l].attention_norm;
  return Needs{{m.position == config::Position::rope, "position: rope"},
               {m.norm_position == config::NormPosition::pre, "norm_position: pre"},
               {m.norm == config::Norm::layernorm, "norm: layernorm"},
               {norms, "attention_norm: false, of the first layer alone"},
               {!m.bias, "bias: false"},
               {m.gated(), "activation: geglu_exact"},
               {m.embedding_norm, "embedding_norm: true"},
               {m.type_vocab_size == 0, "type_vocab_size: 0"},
               {m.head_transform || !lm, "head_transform: true"},
               {m.scale_embeddings == config::ScaleEmbeddings::no, "scale_embeddings: false"},
               {m.scale_attention, "scale_attention: true"},
               {!m.scale_logits, "scale_logits: false"},
               {!m.next_sentence(), "next_sentence: false"}} +
         two_ropes(m) + plain_attention(m) + plain_ffn(m) + full_heads(m);
}

void tensors(Table& t, const config::ModelConfig& m) {
  const std::int64_t C = m.d_model;
  t.tensor(kTable, {m.vocab_size, C}, "embedding.weight");
  t.norm("model.embeddings.norm", "embedding_norm");
  for (std::int64_t l = 0; l < m.n_layers; ++l) {
    const std::string h = "model.layers." + std::to_string(l) + ".",
                      p = "layers." + std::to_string(l) + ".", a = p + "attention.", f = p + "ffn.";
    if (l > 0) t.norm(h + "attn_norm", p + "attention_norm");
    t.stacked(h + "attn.Wqkv.weight", {3 * C, C},
              {a + "query.weight", a + "key.weight", a + "value.weight"}, {C, C, C});
    t.linear(h + "attn.Wo", a + "output", C, C, false);
    t.norm(h + "mlp_norm", p + "ffn_norm");
    t.stacked(h + "mlp.Wi.weight", {2 * m.d_ff, C}, {f + "gate.weight", f + "up.weight"},
              {m.d_ff, m.d_ff});
    t.linear(h + "mlp.Wo", f + "down", C, m.d_ff, false);
  }
  t.norm("model.final_norm", "final_norm");
  if (!m.head_of_type("lm")) return;
  t.linear("head.dense", "head.transform", C, C, false);
  t.norm("head.norm", "head.transform_norm");
  if (!m.tied_head()) t.tensor("decoder.weight", {m.vocab_size, C}, "head.weight");
  if (m.has_head_bias()) t.tensor("decoder.bias", {m.vocab_size}, "head.bias");
}

std::vector<std::vector<std::string>> tied(const config::ModelConfig& m) {
  if (!m.tied_head() || !m.head_of_type("lm")) return {};
  return {{kTable, "decoder.weight"}};
}

constexpr LabelHeads kLabelHeads{"ModernBert",        "head.dense", config::Pooler::transform,
                                 "classifier",        "classifier", "head.norm",
                                 "classifier_pooling"};

}  // namespace

Architecture modernbert() {
  return {
      .name = "modernbert",
      .family = config::Family::encoder,
      .class_name = [](const config::ModelConfig&) { return std::string("ModernBertForMaskedLM"); },
      .read = read,
      .read_heads = read_heads,
      .write = write,
      .needs = needs,
      .tensors = tensors,
      .base = "model.",
      .heads = {"head.", kHead, "classifier."},
      .tied = tied,
      .is_buffer = [](const std::string&) { return false; },
      .windows = Windows::some,
      .local_rope = true,
      .first_norm = false,
      .labels = &kLabelHeads};
}

}  // namespace tfm::huggingface
