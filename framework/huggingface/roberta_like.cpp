#include "huggingface/roberta_like.h"

namespace tfm::huggingface::roberta_like {

config::ModelConfig read(const io::JsonNode& c, std::int64_t vocab_size) {
  config::ModelConfig m = bert_like::read(c, vocab_size, 1);
  if (m.padding_idx < 0) c.fail("pad_token_id is null; expected an id, as positions count from it");
  if (const auto pad = c.find("pad_token_id")) pad->integer(0, m.vocab_size - 1);
  must_say(c, "hidden_act", "gelu");  // transformers' LM head uses GELU whatever this says
  must_be(c, "add_cross_attention", false);
  m.position_offset = m.padding_idx + 1;
  if (m.max_seq_len <= m.position_offset)
    c.fail("max_position_embeddings " + std::to_string(m.max_seq_len) +
           " is not greater than pad_token_id " + std::to_string(m.padding_idx) +
           "; expected more than " + std::to_string(m.position_offset));
  m.max_seq_len -= m.position_offset;
  return m;
}

void read_heads(config::ModelConfig& m, const io::JsonNode& c, const Has& has) {
  m.tie_embeddings = output_is_tied(c, true, has, "lm_head.decoder.weight")
                         ? config::TieEmbeddings::yes
                         : config::TieEmbeddings::no;
}

void write(Json& j, const config::ModelConfig& m) {
  bert_like::write(j, m);
  set(j, {{"max_position_embeddings", m.max_seq_len + m.position_offset}});
}

Needs needs(const config::ModelConfig& m) {
  return bert_like::needs(m) +
         Needs{{m.position_offset > 0, "position_offset: 1 or more"},
               {m.padding_idx == m.position_offset - 1, "padding_idx: position_offset - 1"},
               {m.activation == config::Activation::gelu, "activation: gelu"},
               {!m.next_sentence(), "next_sentence: false"}};
}

void tensors(Table& t, const config::ModelConfig& m, const char* base) {
  bert_like::tensors(t, m, {base, "lm_head.", "dense", "layer_norm"});
}

std::vector<std::vector<std::string>> tied(const config::ModelConfig& m, const char* base) {
  return bert_like::tied(m, base, "lm_head.");
}

bool is_buffer(const std::string& tensor, const std::string& base) {
  return tensor == base + "embeddings.position_ids" ||
         tensor == base + "embeddings.token_type_ids" || tensor == base + "pooler.dense.weight" ||
         tensor == base + "pooler.dense.bias";
}

}  // namespace tfm::huggingface::roberta_like
