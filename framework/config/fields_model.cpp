// Keys of `model`.
#include "config/field_kinds.h"
#include "config/fields.h"

namespace tfm::config {

using namespace field;

namespace {

void describe(DropoutConfig& d, FieldVisitor& v) {
  v.value(fraction("embedding", "dropout probability after the embeddings"), d.embedding);
  v.value(fraction("attention", "dropout probability of the attention weights"), d.attention);
  v.value(fraction("residual",
                   "dropout probability of each sublayer's output, before the residual addition"),
          d.residual);
  v.value(fraction("ffn", "dropout probability of the feed-forward network's hidden activations"),
          d.ffn);
  v.value(fraction("output", "dropout probability of the output of each stack of layers, as in T5"),
          d.output);
}

void describe_dropout(ModelConfig& m, FieldVisitor& v) {
  DropoutConfig& d = m.dropout;
  const Field f =
      fraction("dropout",
               "dropout probability: a number for all places (`output` only if a T5 preset or "
               "`model.init` has it), or a section with one for each");
  v.special(f, {.type = "a number >= 0 and < 1, or a section",
                .read =
                    [&d, f](FieldReader& reader, const YamlNode& node) {
                      if (double p = 0; reader.read_value(f, node, p))
                        d = {p, p, p, p, d.output > 0 ? p : 0};
                    },
                .flow =
                    [&d, &m] {
                      const double p = d.embedding;
                      const bool output = d.output > 0 || m.translates();  // a preset may have it
                      if (d == DropoutConfig{p, p, p, p} && (p == 0 || !output))
                        return number_text(p);
                      return "{embedding: " + number_text(d.embedding) +
                             ", attention: " + number_text(d.attention) +
                             ", residual: " + number_text(d.residual) +
                             ", ffn: " + number_text(d.ffn) +
                             (output ? ", output: " + number_text(d.output) : "") + "}";
                    },
                .keys = [&d](FieldVisitor& inner) { describe(d, inner); },
                .item = f});
}

void describe(RopeConfig& r, FieldVisitor& v) {
  v.value(Field{.name = "theta",
                .help = "base of the rotation frequencies",
                .kind = FieldKind::real,
                .low = 0,
                .low_open = true},
          r.theta);
  v.section(section("scaling", "RoPE frequency scaling as in Llama 3.1"), [&r](FieldVisitor& s) {
    RopeScaling& k = r.scaling;
    s.value(real("factor", 1, "factor by which long wavelengths are stretched; 1: no scaling"),
            k.factor);
    s.value(real("low_freq_factor", 0,
                 "wavelengths above original_max_seq_len / low_freq_factor are stretched by the "
                 "full factor"),
            k.low_freq_factor);
    s.value(real("high_freq_factor", 0,
                 "wavelengths below original_max_seq_len / high_freq_factor are left unchanged"),
            k.high_freq_factor);
    s.value(number("original_max_seq_len", 1, "sequence length of the original pretraining"),
            k.original_max_seq_len);
  });
}

void describe_shape(ModelConfig& m, FieldVisitor& v) {
  v.value(required(number(
              "vocab_size", 1,
              "number of rows of the token embedding; must cover every id of the tokenizer")),
          m.vocab_size);
  v.value(required(number("d_model", 1, "hidden size: width of the residual stream", 1 << 20)),
          m.d_model);
  v.value(
      with_word(
          number(
              "n_layers", 1,
              "number of layers; encoder_decoder: of each stack, unless both numbers below are set",
              10000),
          "auto"),
      m.n_layers);
  v.value(with_word(number("n_encoder_layers", 1,
                           "encoder_decoder: number of encoder layers; auto: `n_layers`", 10000),
                    "auto"),
          m.n_encoder_layers);
  v.value(with_word(number("n_decoder_layers", 1,
                           "encoder_decoder: number of decoder layers; auto: `n_layers`", 10000),
                    "auto"),
          m.n_decoder_layers);
  v.value(required(number("n_heads", 1, "number of attention heads", 65536)), m.n_heads);
  v.value(derived(number("n_kv_heads", 1,
                         "number of key/value heads; fewer than n_heads: grouped-query attention; "
                         "1: multi-query attention",
                         65536),
                  "`n_heads`"),
          m.n_kv_heads);
  v.value(derived(number("d_head", 1, "dimension of each head", 65536), "`d_model / n_heads`"),
          m.d_head);
  v.value(derived(number("d_ff", 1, "hidden dimension of the feed-forward network", 1 << 24),
                  "`4 d_model`; gated activations: `8/3 d_model` rounded up to a multiple of 64"),
          m.d_ff);
  v.value(derived(number("max_seq_len", 1,
                         "maximum sequence length; number of rows of a learned position table"),
                  "`train.seq_len`"),
          m.max_seq_len);
}

void describe_layers(ModelConfig& m, FieldVisitor& v) {
  v.value(option("position", "position encoding"), m.position);
  v.value(number("position_offset", 0,
                 "row of the learned position table used by the first position; BART: 2", 1 << 20),
          m.position_offset);
  v.value(option("sinusoid",
                 "order within a sinusoidal encoding: sines and cosines alternate, or all sines "
                 "precede all cosines"),
          m.sinusoid);
  v.section(section("rope", "rotary position embedding (RoPE), for `position: rope`"),
            [&m](FieldVisitor& r) { describe(m.rope, r); });
  v.section(
      section("relative",
              "relative attention bias of each head as in T5, for `position: relative`"),
      [&m](FieldVisitor& r) {
        r.value(number("buckets", 4, "number of distance buckets", 1 << 16), m.relative.buckets);
        r.value(
            number("max_distance", 4, "distances of at least this share the last bucket", 1 << 20),
            m.relative.max_distance);
      });
  v.value(option("norm", "normalization layer"), m.norm);
  v.value(option("norm_position", "pre: before each sublayer; post: after the residual addition"),
          m.norm_position);
  v.value(Field{.name = "norm_eps",
                .help = "epsilon added to the variance",
                .kind = FieldKind::real,
                .low = 1.2e-38},  // a float
          m.norm_eps);
  v.value(option("activation", "activation function of the feed-forward network"), m.activation);
  v.value(flag("bias", "add biases to linear layers and layernorms"), m.bias);
  v.value(with_word(option("qkv_bias",
                           "add biases to the query, key and value projections; auto: as `bias`"),
                    "auto"),
          m.qkv_bias);
  v.value(with_word(option("ffn_bias", "add biases to the feed-forward network; auto: as `bias`"),
                    "auto"),
          m.ffn_bias);
  v.value(flag("qk_norm", "normalize the queries and keys of each head, before RoPE"), m.qk_norm);
}

void describe_embeddings_and_head(ModelConfig& m, FieldVisitor& v) {
  v.value(option("tie_embeddings",
                 "share the token embedding with the output layer; encoder_decoder: all: source, "
                 "target and output; inputs: source and target; decoder: target and output; none"),
          m.tie_embeddings);
  v.value(flag("scale_embeddings", "multiply token embeddings by sqrt(d_model)"),
          m.scale_embeddings);
  v.value(flag("embedding_norm", "normalize after the embeddings"), m.embedding_norm);
  v.value(
      number("decoder_start", -1,
             "encoder_decoder: decoder start token id; -1: the tokenizer's begin-of-sequence id"),
      m.decoder_start);
  v.value(number("padding_idx", -1,
                 "token id whose input embedding receives no gradient, as PyTorch's `padding_idx`; "
                 "-1: none"),
          m.padding_idx);
  v.value(number("type_vocab_size", 0,
                 "encoder: number of token types (segments) with an embedding; 0: none", 1 << 16),
          m.type_vocab_size);
  v.value(flag("head_transform",
               "encoder: apply a dense layer, the activation and a norm before the output layer, "
               "as in BERT's masked LM head"),
          m.head_transform);
  v.value(flag("next_sentence",
               "encoder: add BERT's next-sentence prediction head, which "
               "`data.train.next_sentence` trains"),
          m.next_sentence);
  v.value(
      with_word(option("head_bias",
                       "add a bias to the output layer; auto: as `bias` unless the layer is tied; "
                       "frozen: one that is not trained, as BART's `final_logits_bias`"),
                "auto"),
      m.head_bias);
  v.value(flag("scale_attention", "divide attention scores by sqrt(d_head)"), m.scale_attention);
  v.value(flag("scale_logits", "divide the hidden state by sqrt(d_model) before the output layer"),
          m.scale_logits);
  v.value(
      Field{.name = "init_std",
            .help =
                "standard deviation of the initial weights; with `norm_position: pre` attention "
                "outputs and second feed-forward layers have it divided by sqrt(sublayers of "
                "their stack)",
            .kind = FieldKind::real,
            .low = 0,
            .low_open = true},
      m.init_std);
}

}  // namespace

void describe(ModelConfig& m, FieldVisitor& v) {
  static const std::vector<std::string> names = preset_names();
  v.value(required(option("family",
                          "encoder: masked language model; decoder: causal language model; "
                          "encoder_decoder: sequence-to-sequence model")),
          m.family);
  v.value(
      with_word(
          choice(
              "preset", std::vector<std::string_view>(names.begin(), names.end()),
              "published model shape that fills this section; keys written next to it override it"),
          "none"),
      m.preset);
  v.value(text("init",
               "initial weights: random, or a Hugging Face directory or a checkpoint, which also "
               "sets the model's shape and is where `data.tokenizer` is looked for by default"),
          m.init);
  describe_shape(m, v);
  describe_layers(m, v);
  describe_embeddings_and_head(m, v);
  describe_dropout(m, v);
}

}  // namespace tfm::config
