// BigBird (Zaheer et al. 2020): BERT with blocks of attention. transformers draws random blocks in
// training alone; in evaluation each of them is the first block, which is what a model has here.
#include "huggingface/bert_like.h"

namespace tfm::huggingface {
namespace {

constexpr const char *kType = "attention_type", *kSparse = "block_sparse", *kFull = "original_full",
                     *kSize = "block_size", *kRandom = "num_random_blocks";

config::ModelConfig read(const io::JsonNode& c) {
  config::ModelConfig m = bert_like::read(c, 50358, 0);
  must_be(c, "add_cross_attention", false);
  m.max_seq_len = whole(c, "max_position_embeddings", 4096);
  m.activation = activation_of(c, "hidden_act", c.text("hidden_act", "gelu_new"), false);
  if (!c.flag("use_bias", true)) m.qkv_bias = config::Switch::no;
  if (c.flag("rescale_embeddings", false)) m.scale_embeddings = config::ScaleEmbeddings::yes;
  const std::string type = c.text(kType, kSparse);
  if (type == kFull) return m;
  if (type != kSparse)
    c.at(kType).fail("'" + type + "' is unknown; expected " + kSparse + " or " + kFull);
  config::BlocksConfig& blocks = m.attention.blocks;
  blocks.size = whole(c, kSize, 64), blocks.random = whole(c, kRandom, 3, 1024);
  if (blocks.size == 0) c.at(kSize).fail("expected a whole number >= 1");
  blocks.others = config::OtherBlocks::first;
  return m;
}

void write(Json& j, const config::ModelConfig& m) {
  bert_like::write(j, m);
  const config::BlocksConfig& blocks = m.attention.blocks;
  set(j, {{"use_bias", m.has_qkv_bias()},
          {"rescale_embeddings", m.scale_embeddings == config::ScaleEmbeddings::yes},
          {kType, blocks.size > 0 ? kSparse : kFull}});
  if (blocks.size > 0) set(j, {{kSize, blocks.size}, {kRandom, blocks.random}});
}

Needs needs(const config::ModelConfig& m) {
  config::ModelConfig plain = m;
  plain.qkv_bias = config::Switch::automatic;
  if (m.scale_embeddings == config::ScaleEmbeddings::yes)
    plain.scale_embeddings = config::ScaleEmbeddings::no;
  return bert_like::needs(plain) +
         Needs{{m.position_offset == 0, "position_offset: 0"},
               {m.attention.blocks.size == 0 ||
                    m.attention.blocks.others == config::OtherBlocks::first,
                "attention: {blocks: {others: first}}"}};
}

void tensors(Table& t, const config::ModelConfig& m) {
  bert_like::pretraining_tensors(t, m, "bert.pooler");
}

bool is_buffer(const std::string& tensor) {
  return tensor == "bert.embeddings.position_ids" || tensor == "bert.embeddings.token_type_ids" ||
         tensor.starts_with("bert.pooler.") || tensor.starts_with("cls.seq_relationship.");
}

}  // namespace

Architecture big_bird() {
  return {
      .name = "big_bird",
      .family = config::Family::encoder,
      .class_name =
          [](const config::ModelConfig& m) {
            return std::string(m.next_sentence() ? "BigBirdForPreTraining" : "BigBirdForMaskedLM");
          },
      .read = read,
      .read_heads = bert_like::read_pretraining_heads,
      .write = write,
      .needs = needs,
      .tensors = tensors,
      .base = "bert.",
      .heads = {"cls."},
      .tied = bert_like::pretraining_tied,
      .is_buffer = is_buffer,
      .has = {Feature::blocks}};
}

}  // namespace tfm::huggingface
