#include "huggingface/bart_like.h"

namespace tfm::huggingface {
namespace {

config::ModelConfig read(const io::JsonNode& c) {
  config::ModelConfig m = bart_like::read(c, 50265, 1, 2);
  m.position_offset = 2, m.embedding_norm = true;
  return m;
}

void read_heads(config::ModelConfig& m, const io::JsonNode& c, const Has& has) {
  bart_like::read_heads(m, c, has, true);
}

Needs needs(const config::ModelConfig& m) {
  return bart_like::needs(m) +
         Needs{{m.position == config::Position::learned, "position: learned"},
               {m.position_offset == 2, "position_offset: 2"},
               {m.embedding_norm, "embedding_norm: true"},
               {m.tie_embeddings != config::TieEmbeddings::decoder, "tie_embeddings: all"}};
}

void tensors(Table& t, const config::ModelConfig& m) { bart_like::tensors(t, m, true); }

bool is_buffer(const std::string& tensor) { return bart_like::is_version(tensor); }

}  // namespace

Architecture bart() {
  return {
      .name = "bart",
      .family = config::Family::encoder_decoder,
      .class_name =
          [](const config::ModelConfig&) { return std::string("BartForConditionalGeneration"); },
      .read = read,
      .read_heads = read_heads,
      .write = bart_like::write,
      .needs = needs,
      .tensors = tensors,
      .base = bart_like::kBase,
      .heads = bart_like::heads(),
      .tied = bart_like::tied,
      .is_buffer = is_buffer,
      .constant = "final_logits_bias"};
}

}  // namespace tfm::huggingface
