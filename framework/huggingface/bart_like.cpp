#include "huggingface/bart_like.h"

namespace tfm::huggingface::bart_like {

config::ModelConfig read(const io::JsonNode& c, std::int64_t vocab_size, std::int64_t pad,
                         std::int64_t start) {
  config::ModelConfig m;
  m.family = config::Family::encoder_decoder;
  m.norm_position = config::NormPosition::post;
  m.head_bias = config::HeadBias::frozen;
  m.vocab_size = whole(c, "vocab_size", vocab_size);
  m.d_model = whole(c, "d_model", 1024), m.n_encoder_layers = layers(c, "encoder_layers", 12),
  m.n_decoder_layers = layers(c, "decoder_layers", 12);
  m.n_heads = whole(c, "encoder_attention_heads", 16), m.d_ff = whole(c, "encoder_ffn_dim", 4096);
  if (whole(c, "decoder_attention_heads", 16) != m.n_heads)
    c.fail(
        "decoder_attention_heads: differs from encoder_attention_heads; expected the same value");
  if (whole(c, "decoder_ffn_dim", 4096) != m.d_ff)
    c.fail("decoder_ffn_dim: differs from encoder_ffn_dim; expected the same value");
  m.max_seq_len = whole(c, "max_position_embeddings", 1024),
  m.padding_idx = padding(c, m.vocab_size, pad);
  if (!has_member(c, "decoder_start_token_id") && start < m.vocab_size) m.decoder_start = start;
  m.activation =
      activation_of(c, "activation_function", c.text("activation_function", "gelu"), false);
  if (c.flag("scale_embedding", false)) m.scale_embeddings = config::ScaleEmbeddings::yes;
  m.init_std = real(c, "init_std", 0.02);
  const double p = real(c, "dropout", 0.1);
  m.dropout = {p, real(c, "attention_dropout", 0), p, real(c, "activation_dropout", 0)};
  for (const char* key : {"normalize_before", "add_final_layer_norm"}) must_be(c, key, false);
  return m;
}

// Where tie_word_embeddings is false, version 4 of transformers shares the table of both stacks,
// version 5 does not.
void read_heads(config::ModelConfig& m, const io::JsonNode& c, const Has& has, bool shared) {
  const bool inputs = shared && has("model.shared.weight") &&
                      !has("model.encoder.embed_tokens.weight") &&
                      !has("model.decoder.embed_tokens.weight");
  using Tie = config::TieEmbeddings;
  m.tie_embeddings = c.flag("tie_word_embeddings", true) ? (shared ? Tie::all : Tie::decoder)
                                                         : (inputs ? Tie::inputs : Tie::none);
  if (!has("final_logits_bias")) m.head_bias = config::HeadBias::no;
}

void write(Json& j, const config::ModelConfig& m) {
  set(j, {{"d_model", m.d_model},
          {"encoder_layers", m.n_encoder_layers},
          {"decoder_layers", m.n_decoder_layers},
          {"encoder_attention_heads", m.n_heads},
          {"decoder_attention_heads", m.n_heads},
          {"encoder_ffn_dim", m.d_ff},
          {"decoder_ffn_dim", m.d_ff},
          {"max_position_embeddings", m.max_seq_len},
          {"activation_function", activation_name(j, "activation_function", m.activation)},
          {"scale_embedding", m.scale_embeddings == config::ScaleEmbeddings::yes},
          {"dropout", m.dropout.residual},
          {"attention_dropout", m.dropout.attention},
          {"activation_dropout", m.dropout.ffn},
          {"init_std", m.init_std},
          {"is_encoder_decoder", true}});
}

Needs needs(const config::ModelConfig& m, bool before) {
  return Needs{before
                   ? Needs::Need{m.norm_position == config::NormPosition::pre, "norm_position: pre"}
                   : Needs::Need{m.norm_position == config::NormPosition::post,
                                 "norm_position: post"},
               {m.norm == config::Norm::layernorm, "norm: layernorm"},
               {m.norm_eps == 1e-5, "norm_eps: 1e-5"},
               {m.bias, "bias: true"},
               {!m.gated(), "an activation without gate"},
               {m.scale_attention, "scale_attention: true"},
               {!m.scale_logits, "scale_logits: false"}} +
         plain_attention(m) + plain_ffn(m) + full_heads(m);
}

namespace {

void tables(Table& t, const config::ModelConfig& m, bool unshared) {
  const std::vector<std::int64_t> shape{m.vocab_size, m.d_model},
      source{m.source_vocabulary(), m.d_model};
  const bool inputs = m.tie_embeddings == config::TieEmbeddings::inputs;
  const std::string encoder = inputs ? "embedding.weight" : "encoder.embedding.weight",
                    decoder = inputs ? encoder : "decoder.embedding.weight";
  if (m.tie_embeddings == config::TieEmbeddings::all)
    return t.tensor("model.shared.weight", shape, "embedding.weight");
  if (inputs || unshared) t.optional("model.shared.weight", shape, encoder);
  if (!inputs && unshared) t.last_is_overridden();
  const auto table = [&](const char* name, const auto& of, const std::string& part) {
    inputs ? t.optional(name, of, part) : t.tensor(name, of, part);
  };
  table("model.encoder.embed_tokens.weight", source, encoder);
  table("model.decoder.embed_tokens.weight", shape, decoder);
  if (!m.tied_head()) t.tensor("lm_head.weight", shape, "head.weight");
}

}  // namespace

void tensors(Table& t, const config::ModelConfig& m, bool unshared) {
  const std::int64_t C = m.d_model;
  tables(t, m, unshared);
  for (const std::string& stack : {std::string("encoder."), std::string("decoder.")}) {
    const bool decoder = stack == "decoder.";
    if (m.position == config::Position::learned)
      t.tensor("model." + stack + "embed_positions.weight", {m.max_seq_len + m.position_offset, C},
               stack + "position.weight");
    if (m.embedding_norm)
      t.norm("model." + stack + "layernorm_embedding", stack + "embedding_norm");
    for (std::int64_t l = 0; l < (decoder ? m.n_decoder_layers : m.n_encoder_layers); ++l) {
      const std::string h = "model." + stack + "layers." + std::to_string(l) + ".",
                        p = stack + "layers." + std::to_string(l) + ".";
      t.attention(h + "self_attn.", {"q_proj", "k_proj", "v_proj", "out_proj"}, p + "attention");
      t.norm(h + "self_attn_layer_norm", p + "attention_norm");
      if (decoder) {
        t.attention(h + "encoder_attn.", {"q_proj", "k_proj", "v_proj", "out_proj"},
                    p + "cross_attention");
        t.norm(h + "encoder_attn_layer_norm", p + "cross_attention_norm");
      }
      t.linear(h + "fc1", p + "ffn.up", m.d_ff, C, true);
      t.linear(h + "fc2", p + "ffn.down", C, m.d_ff, true);
      t.norm(h + "final_layer_norm", p + "ffn_norm");
    }
    if (m.norm_position == config::NormPosition::pre)
      t.norm("model." + stack + "layer_norm", stack + "final_norm");
  }
  if (m.has_head_bias()) t.tensor("final_logits_bias", {1, m.vocab_size}, "head.bias");
}

bool is_version(const std::string& tensor) {
  return tensor == "model.encoder.version" || tensor == "model.decoder.version";
}

namespace {

std::vector<std::vector<std::string>> tied(const config::ModelConfig& m) {
  const std::string encoder = "model.encoder.embed_tokens.weight",
                    decoder = "model.decoder.embed_tokens.weight", shared = "model.shared.weight";
  switch (m.tie_embeddings) {
    case config::TieEmbeddings::all:
      return {{shared, encoder, decoder, "lm_head.weight"}};
    case config::TieEmbeddings::inputs:
      return {{shared, encoder, decoder}};
    case config::TieEmbeddings::decoder:
      return {{decoder, "lm_head.weight"}};
    default:
      return {};
  }
}

}  // namespace

Architecture architecture(const char* name, decltype(Architecture::class_name) class_name,
                          decltype(Architecture::read) read, decltype(Architecture::needs) needs) {
  return {.name = name,
          .family = config::Family::encoder_decoder,
          .class_name = class_name,
          .read = read,
          .read_heads = [](config::ModelConfig& m, const io::JsonNode& c,
                           const Has& has) { read_heads(m, c, has, true); },
          .write = write,
          .needs = needs,
          .tensors = [](Table& t, const config::ModelConfig& m) { tensors(t, m, true); },
          .base = "model.",
          .heads = {"lm_head.", "final_logits_bias"},
          .tied = tied,
          .is_buffer = is_version};
}

}  // namespace tfm::huggingface::bart_like
