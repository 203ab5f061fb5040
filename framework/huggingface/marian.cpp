#include "huggingface/bart_like.h"

namespace tfm::huggingface {
namespace {

// Version 5 of transformers has models with `true` and a table for each stack.
constexpr const char* kShare = "share_encoder_decoder_embeddings";

config::ModelConfig read(const io::JsonNode& c) {
  config::ModelConfig m = bart_like::read(c, 58101, 58100, 58100);
  m.position = config::Position::sinusoidal, m.sinusoid = config::Sinusoid::halves;
  const std::int64_t source = m.vocab_size;
  m.vocab_size = whole(c, "decoder_vocab_size", source);
  if (m.vocab_size == source) return m;
  if (c.flag(kShare, true))
    c.fail("decoder_vocab_size: differs from vocab_size, though " + std::string(kShare) +
           " is true; expected the same value");
  m.source_vocab_size = source;
  return m;
}

void read_heads(config::ModelConfig& m, const io::JsonNode& c, const Has& has) {
  bart_like::read_heads(m, c, has, c.flag(kShare, true));
}

void write(Json& j, const config::ModelConfig& m) {
  bart_like::write(j, m);
  set(j, {{"vocab_size", m.source_vocabulary()}, {"decoder_vocab_size", m.vocab_size}});
  if (!contains(j, kShare))
    set(j, {{kShare, m.tie_embeddings == config::TieEmbeddings::all ||
                         m.tie_embeddings == config::TieEmbeddings::inputs}});
}

Needs needs(const config::ModelConfig& m) {
  return bart_like::needs(m) +
         Needs{{m.position == config::Position::sinusoidal, "position: sinusoidal"},
               {m.sinusoid == config::Sinusoid::halves, "sinusoid: halves"},
               {!m.embedding_norm, "embedding_norm: false"}};
}

void tensors(Table& t, const config::ModelConfig& m) { bart_like::tensors(t, m, false); }

bool is_sinusoid(const std::string& tensor) {
  return tensor == "model.encoder.embed_positions.weight" ||
         tensor == "model.decoder.embed_positions.weight";
}

bool is_buffer(const std::string& tensor) {
  return tensor == "model.shared.weight" || is_sinusoid(tensor) ||  // where each stack has a table
         bart_like::is_version(tensor);
}

}  // namespace

Architecture marian() {
  Architecture a = bart_like::architecture(
      "marian", [](const config::ModelConfig&) { return std::string("MarianMTModel"); }, read,
      needs);
  a.read_heads = read_heads;
  a.write = write;
  a.tensors = tensors;
  a.is_buffer = is_buffer;
  a.is_sinusoid = is_sinusoid;
  a.constant = "final_logits_bias";
  return a;
}

}  // namespace tfm::huggingface
