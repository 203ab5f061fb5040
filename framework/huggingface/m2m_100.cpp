// M2M-100 (Fan et al. 2020) and NLLB (NLLB Team 2022).
#include "huggingface/bart_like.h"

namespace tfm::huggingface {
namespace {

// Positions start behind the id of padding and do not count padding.
config::ModelConfig read(const io::JsonNode& c) {
  config::ModelConfig m = bart_like::read(c, 128112, 1, 2);
  if (m.padding_idx < 0) c.fail("pad_token_id is null; expected an id, as positions count from it");
  m.norm_position = config::NormPosition::pre;
  m.position = config::Position::sinusoidal, m.sinusoid = config::Sinusoid::tensor2tensor;
  m.position_offset = m.padding_idx + 1;
  m.head_bias = config::HeadBias::no;
  m.activation =
      activation_of(c, "activation_function", c.text("activation_function", "relu"), false);
  m.dropout.attention = real(c, "attention_dropout", 0.1);
  m.scale_embeddings =
      c.flag("scale_embedding", true) ? config::ScaleEmbeddings::yes : config::ScaleEmbeddings::no;
  return m;
}

Needs needs(const config::ModelConfig& m) {
  return bart_like::needs(m, true) +
         Needs{{m.position == config::Position::sinusoidal, "position: sinusoidal"},
               {m.sinusoid == config::Sinusoid::tensor2tensor, "sinusoid: tensor2tensor"},
               {m.padding_idx == m.position_offset - 1, "padding_idx: position_offset - 1"},
               {!m.embedding_norm, "embedding_norm: false"},
               {m.source_vocab_size == 0, "source_vocab_size: 0"},
               {!m.has_head_bias(), "head_bias: false"},
               {m.tie_embeddings != config::TieEmbeddings::decoder, "tie_embeddings: all"}};
}

bool is_buffer(const std::string& tensor) {
  return tensor == "model.encoder.embed_positions.weights" ||
         tensor == "model.decoder.embed_positions.weights" || bart_like::is_version(tensor);
}

}  // namespace

Architecture m2m_100() {
  Architecture a = bart_like::architecture(
      "m2m_100",
      [](const config::ModelConfig&) { return std::string("M2M100ForConditionalGeneration"); },
      read, needs);
  a.is_buffer = is_buffer;
  a.has = {Feature::sinusoid_offset, Feature::tensor2tensor};
  return a;
}

}  // namespace tfm::huggingface
