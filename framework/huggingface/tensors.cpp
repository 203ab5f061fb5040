#include "huggingface/tensors.h"

#include <algorithm>
#include <regex>

#include "core/error.h"

namespace tfm::huggingface {
namespace {

class Table {
 public:
  explicit Table(const config::ModelConfig& m) : m_(m) {}

  void tensor(const std::string& name, std::vector<std::int64_t> shape, const std::string& part,
              bool transposed = false) {
    rows_.push_back({name, std::move(shape), {part}, transposed});
  }
  void optional(const std::string& name, std::vector<std::int64_t> shape, const std::string& part) {
    rows_.push_back({.name = name, .shape = std::move(shape), .parts = {part}, .optional = true});
  }
  void linear(const std::string& name, const std::string& part, std::int64_t out, std::int64_t in,
              bool bias) {
    tensor(name + ".weight", {out, in}, part + ".weight");
    if (bias) tensor(name + ".bias", {out}, part + ".bias");
  }
  // GPT-2's Conv1D: (in, out), several parts side by side.
  void conv(const std::string& name, const std::vector<std::string>& parts, std::int64_t out,
            std::int64_t in) {
    rows_.push_back({name + ".weight", {in, out}, with(parts, ".weight"), true});
    if (m_.bias) rows_.push_back({name + ".bias", {out}, with(parts, ".bias"), false});
  }
  void norm(const std::string& name, const std::string& part) {
    tensor(name + ".weight", {m_.d_model}, part + ".weight");
    if (m_.bias && m_.norm == config::Norm::layernorm)
      tensor(name + ".bias", {m_.d_model}, part + ".bias");
  }
  // Query, key, value and output as separate layers.
  void attention(const std::string& name, const std::array<const char*, 4>& words,
                 const std::string& part) {
    const std::int64_t C = m_.d_model, q = m_.n_heads * m_.d_head, kv = m_.n_kv_heads * m_.d_head;
    linear(name + words[0], part + ".query", q, C, m_.bias);
    linear(name + words[1], part + ".key", kv, C, m_.bias);
    linear(name + words[2], part + ".value", kv, C, m_.bias);
    linear(name + words[3], part + ".output", C, q, m_.bias);
  }
  std::vector<ExchangedTensor> take() { return std::move(rows_); }

 private:
  static std::vector<std::string> with(std::vector<std::string> parts, const char* suffix) {
    for (auto& p : parts) p += suffix;
    return parts;
  }
  const config::ModelConfig& m_;
  std::vector<ExchangedTensor> rows_;
};

void gpt2(Table& t, const config::ModelConfig& m) {
  const std::int64_t C = m.d_model;
  t.tensor("transformer.wte.weight", {m.vocab_size, C}, "embedding.weight");
  t.tensor("transformer.wpe.weight", {m.max_seq_len, C}, "position.weight");
  for (std::int64_t l = 0; l < m.n_layers; ++l) {
    const std::string h = "transformer.h." + std::to_string(l) + ".",
                      p = "layers." + std::to_string(l) + ".";
    t.norm(h + "ln_1", p + "attention_norm");
    t.conv(h + "attn.c_attn", {p + "attention.query", p + "attention.key", p + "attention.value"},
           3 * C, C);
    t.conv(h + "attn.c_proj", {p + "attention.output"}, C, C);
    t.norm(h + "ln_2", p + "ffn_norm");
    t.conv(h + "mlp.c_fc", {p + "ffn.up"}, m.d_ff, C);
    t.conv(h + "mlp.c_proj", {p + "ffn.down"}, C, m.d_ff);
  }
  t.norm("transformer.ln_f", "final_norm");
  if (!m.tied_head()) t.tensor("lm_head.weight", {m.vocab_size, C}, "head.weight");
}

void llama(Table& t, const config::ModelConfig& m) {
  const std::int64_t C = m.d_model;
  t.tensor("model.embed_tokens.weight", {m.vocab_size, C}, "embedding.weight");
  for (std::int64_t l = 0; l < m.n_layers; ++l) {
    const std::string h = "model.layers." + std::to_string(l) + ".",
                      p = "layers." + std::to_string(l) + ".";
    t.norm(h + "input_layernorm", p + "attention_norm");
    t.attention(h + "self_attn.", {"q_proj", "k_proj", "v_proj", "o_proj"}, p + "attention");
    t.norm(h + "post_attention_layernorm", p + "ffn_norm");
    t.linear(h + "mlp.gate_proj", p + "ffn.gate", m.d_ff, C, m.bias);
    t.linear(h + "mlp.up_proj", p + "ffn.up", m.d_ff, C, m.bias);
    t.linear(h + "mlp.down_proj", p + "ffn.down", C, m.d_ff, m.bias);
  }
  t.norm("model.norm", "final_norm");
  if (!m.tied_head()) t.tensor("lm_head.weight", {m.vocab_size, C}, "head.weight");
}

void bert(Table& t, const config::ModelConfig& m) {
  const std::int64_t C = m.d_model;
  const std::string e = "bert.embeddings.", head = "cls.predictions.";
  t.tensor(e + "word_embeddings.weight", {m.vocab_size, C}, "embedding.weight");
  t.tensor(e + "position_embeddings.weight", {m.max_seq_len, C}, "position.weight");
  t.tensor(e + "token_type_embeddings.weight", {m.type_vocab_size, C}, "segment.weight");
  t.norm(e + "LayerNorm", "embedding_norm");
  for (std::int64_t l = 0; l < m.n_layers; ++l) {
    const std::string h = "bert.encoder.layer." + std::to_string(l) + ".",
                      p = "layers." + std::to_string(l) + ".";
    t.attention(h + "attention.", {"self.query", "self.key", "self.value", "output.dense"},
                p + "attention");
    t.norm(h + "attention.output.LayerNorm", p + "attention_norm");
    t.linear(h + "intermediate.dense", p + "ffn.up", m.d_ff, C, true);
    t.linear(h + "output.dense", p + "ffn.down", C, m.d_ff, true);
    t.norm(h + "output.LayerNorm", p + "ffn_norm");
  }
  t.linear(head + "transform.dense", "head.transform", C, C, true);
  t.norm(head + "transform.LayerNorm", "head.transform_norm");
  t.tensor(head + "bias", {m.vocab_size}, "head.bias");
  if (!m.tied_head()) {
    t.tensor(head + "decoder.weight", {m.vocab_size, C}, "head.weight");
    t.optional(head + "decoder.bias", {m.vocab_size},
               "head.bias");  // which version 5 of transformers has besides, and uses
  }
  if (!m.next_sentence) return;
  t.linear("bert.pooler.dense", "pooler", C, C, true);
  t.linear("cls.seq_relationship", "next_sentence", 2, C, true);
}

void t5(Table& t, const config::ModelConfig& m) {
  const std::int64_t C = m.d_model;
  t.tensor("shared.weight", {m.vocab_size, C}, "embedding.weight");
  for (const std::string& stack : {std::string("encoder."), std::string("decoder.")}) {
    const bool decoder = stack == "decoder.";
    for (std::int64_t l = 0; l < (decoder ? m.n_decoder_layers : m.n_encoder_layers); ++l) {
      const std::string h = stack + "block." + std::to_string(l) + ".layer.",
                        p = stack + "layers." + std::to_string(l) + ".";
      t.attention(h + "0.SelfAttention.", {"q", "k", "v", "o"}, p + "attention");
      if (l == 0)
        t.tensor(h + "0.SelfAttention.relative_attention_bias.weight",
                 {m.relative.buckets, m.n_heads}, stack + "relative_bias.weight", true);
      t.norm(h + "0.layer_norm", p + "attention_norm");
      if (decoder) {
        t.attention(h + "1.EncDecAttention.", {"q", "k", "v", "o"}, p + "cross_attention");
        t.norm(h + "1.layer_norm", p + "cross_attention_norm");
      }
      const std::string f = h + (decoder ? "2." : "1.");
      if (m.gated()) {
        t.linear(f + "DenseReluDense.wi_0", p + "ffn.gate", m.d_ff, C, false);
        t.linear(f + "DenseReluDense.wi_1", p + "ffn.up", m.d_ff, C, false);
      } else {
        t.linear(f + "DenseReluDense.wi", p + "ffn.up", m.d_ff, C, false);
      }
      t.linear(f + "DenseReluDense.wo", p + "ffn.down", C, m.d_ff, false);
      t.norm(f + "layer_norm", p + "ffn_norm");
    }
    t.norm(stack + "final_layer_norm", stack + "final_norm");
  }
  if (!m.tied_head()) t.tensor("lm_head.weight", {m.vocab_size, C}, "head.weight");
}

// One table, or of each stack its own; version 5 of transformers has an unused shared one beside
// the stacks' where the output is not tied.
void bart_tables(Table& t, const config::ModelConfig& m, bool marian) {
  const std::vector<std::int64_t> shape{m.vocab_size, m.d_model};
  const bool inputs = m.tie_embeddings == config::TieEmbeddings::inputs;
  const std::string encoder = inputs ? "embedding.weight" : "encoder.embedding.weight",
                    decoder = inputs ? encoder : "decoder.embedding.weight";
  if (m.tie_embeddings == config::TieEmbeddings::all)
    return t.tensor("model.shared.weight", shape, "embedding.weight");
  if (inputs || !marian) t.optional("model.shared.weight", shape, encoder);
  t.optional("model.encoder.embed_tokens.weight", shape, encoder);
  t.optional("model.decoder.embed_tokens.weight", shape, decoder);
  if (!m.tied_head()) t.tensor("lm_head.weight", shape, "head.weight");
}

void bart(Table& t, const config::ModelConfig& m, bool marian) {
  const std::int64_t C = m.d_model;
  bart_tables(t, m, marian);
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
  }
  if (m.has_head_bias()) t.tensor("final_logits_bias", {1, m.vocab_size}, "head.bias");
}

}  // namespace

std::vector<ExchangedTensor> exchanged_tensors(const config::ModelConfig& m,
                                               const std::string& type) {
  Table t(m);
  if (type == "gpt2")
    gpt2(t, m);
  else if (type == "llama")
    llama(t, m);
  else if (type == "bert")
    bert(t, m);
  else if (type == "t5")
    t5(t, m);
  else
    bart(t, m, type == "marian");
  return t.take();
}

bool is_buffer(const std::string& type, const std::string& name) {
  static const std::regex buffers(
      R"(transformer\.h\.\d+\.attn\.(masked_)?bias|.*\.rotary_emb\.inv_freq|bert\.embeddings\.position_ids|model\.(en|de)coder\.embed_positions\.weight)"
      R"(|decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight)");
  if (name.size() > 128) return false;  // and std::regex would need a stack in proportion
  if (type == "bart" && name.find("embed_positions") != std::string::npos) return false;
  if (type == "marian" && name == "model.shared.weight")
    return true;  // where each stack has a table
  return std::regex_match(name, buffers);
}

std::string original_of(const std::string& type, const std::string& name) {
  const bool stack = name.ends_with("coder.embed_tokens.weight"), output = name == "lm_head.weight";
  if (type == "gpt2" && output) return "transformer.wte.weight";
  if (type == "llama" && output) return "model.embed_tokens.weight";
  if (type == "bert" && name == "cls.predictions.decoder.weight")
    return "bert.embeddings.word_embeddings.weight";
  if (type == "bert" && name == "cls.predictions.decoder.bias") return "cls.predictions.bias";
  if (type == "t5" && (output || stack)) return "shared.weight";
  if ((type == "bart" || type == "marian") && output) return "model.decoder.embed_tokens.weight";
  if ((type == "bart" || type == "marian") && stack) return "model.shared.weight";
  return {};
}

std::string current_name(const std::string& type, const std::string& name) {
  if (type == "gpt2" && !name.starts_with("transformer.") && !name.starts_with("lm_head."))
    return "transformer." + name;
  for (const auto& [old, now] : {std::pair{".gamma", ".weight"}, {".beta", ".bias"}})
    if (type == "bert" && name.ends_with(old))
      return name.substr(0, name.size() - std::string(old).size()) + now;
  return name;
}

}  // namespace tfm::huggingface
