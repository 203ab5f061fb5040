#include "huggingface/bart_like.h"

namespace tfm::huggingface {
namespace {

config::ModelConfig read(const io::JsonNode& c) {
  config::ModelConfig m = bart_like::read(c, 50265, 1, 2);
  m.position_offset = 2, m.embedding_norm = true;
  return m;
}

Needs needs(const config::ModelConfig& m) {
  return bart_like::needs(m) +
         Needs{{m.position == config::Position::learned, "position: learned"},
               {m.position_offset == 2, "position_offset: 2"},
               {m.embedding_norm, "embedding_norm: true"},
               {m.source_vocab_size == 0, "source_vocab_size: 0"},
               {m.tie_embeddings != config::TieEmbeddings::decoder, "tie_embeddings: all"}};
}

}  // namespace

Architecture bart() {
  Architecture a = bart_like::architecture(
      "bart",
      [](const config::ModelConfig&) { return std::string("BartForConditionalGeneration"); }, read,
      needs);
  a.constant = "final_logits_bias";
  return a;
}

}  // namespace tfm::huggingface
