// Keys of `model`.
#include "config/field_kinds.h"
#include "config/fields.h"

namespace tfm::config {

using namespace field;

namespace {

void describe(DropoutConfig& d, FieldVisitor& v) {
  v.value(fraction("embedding", "probability after the embeddings"), d.embedding);
  v.value(fraction("attention", "probability on the attention weights"), d.attention);
  v.value(fraction("residual", "probability on the output of each sublayer"), d.residual);
  v.value(fraction("ffn", "probability on the hidden layer of the feed-forward network"), d.ffn);
}

void describe_dropout(DropoutConfig& d, FieldVisitor& v) {
  const Field f = fraction("dropout", "a number sets all four places, a section each");
  v.special(f, {.type = "a number >= 0 and < 1, or a section",
                .read =
                    [&d, f](FieldReader& reader, const YamlNode& node) {
                      if (double p = 0; reader.read_value(f, node, p)) d = {p, p, p, p};
                    },
                .flow =
                    [&d] {
                      if (d == DropoutConfig{d.embedding, d.embedding, d.embedding, d.embedding})
                        return number_text(d.embedding);
                      return "{embedding: " + number_text(d.embedding) +
                             ", attention: " + number_text(d.attention) +
                             ", residual: " + number_text(d.residual) +
                             ", ffn: " + number_text(d.ffn) + "}";
                    },
                .keys = [&d](FieldVisitor& inner) { describe(d, inner); },
                .item = f});
}

void describe(RopeConfig& r, FieldVisitor& v) {
  v.value(Field{.name = "theta",
                .help = "base of the wavelengths",
                .kind = FieldKind::real,
                .low = 0,
                .low_open = true},
          r.theta);
  v.section(section("scaling", "frequency scaling as in Llama 3"), [&r](FieldVisitor& s) {
    RopeScaling& k = r.scaling;
    s.value(real("factor", 1, "long wavelengths are stretched by this; 1 switches the scaling off"),
            k.factor);
    s.value(real("low_freq_factor", 0,
                 "wavelengths above original_max_seq_len / this are stretched in full"),
            k.low_freq_factor);
    s.value(real("high_freq_factor", 0, "wavelengths below original_max_seq_len / this are kept"),
            k.high_freq_factor);
    s.value(number("original_max_seq_len", 1, "sequence length the model was first trained for"),
            k.original_max_seq_len);
  });
}

void describe_shape(ModelConfig& m, FieldVisitor& v) {
  v.value(required(number("vocab_size", 1,
                          "rows of the token embedding; the tokenizer's ids have to fit")),
          m.vocab_size);
  v.value(required(number("d_model", 1, "width of the residual stream", 1 << 20)), m.d_model);
  v.value(
      with_word(number("n_layers", 1,
                       "blocks; required but for an encoder_decoder that says both below", 10000),
                "auto"),
      m.n_layers);
  v.value(with_word(number("n_encoder_layers", 1,
                           "encoder_decoder: blocks of the encoder; auto: `n_layers`", 10000),
                    "auto"),
          m.n_encoder_layers);
  v.value(with_word(number("n_decoder_layers", 1,
                           "encoder_decoder: blocks of the decoder; auto: `n_layers`", 10000),
                    "auto"),
          m.n_decoder_layers);
  v.value(required(number("n_heads", 1, "attention heads", 65536)), m.n_heads);
  v.value(derived(number("n_kv_heads", 1,
                         "heads of keys and values; fewer: grouped-query, 1: multi-query", 65536),
                  "`n_heads`"),
          m.n_kv_heads);
  v.value(derived(number("d_head", 1, "width of a head", 65536), "`d_model / n_heads`"), m.d_head);
  v.value(derived(number("d_ff", 1, "width of the feed-forward network's hidden layer", 1 << 24),
                  "`4 d_model`; gated activations: `8/3 d_model` up to a multiple of 64"),
          m.d_ff);
  v.value(derived(number("max_seq_len", 1, "longest sequence; rows of a learned position table"),
                  "`train.seq_len`"),
          m.max_seq_len);
}

void describe_layers(ModelConfig& m, FieldVisitor& v) {
  v.value(option("position", "how positions enter"), m.position);
  v.value(number("position_offset", 0,
                 "row of a learned position table that the first position takes; BART: 2", 1 << 20),
          m.position_offset);
  v.value(option("sinusoid", "sine and cosine in turns, or all sines before all cosines"),
          m.sinusoid);
  v.section(section("rope", "rotary positions, for `position: rope`"),
            [&m](FieldVisitor& r) { describe(m.rope, r); });
  v.section(
      section("relative", "a bias of each head by distance, as in T5, for `position: relative`"),
      [&m](FieldVisitor& r) {
        r.value(number("buckets", 4, "entries of a head", 1 << 16), m.relative.buckets);
        r.value(number("max_distance", 4, "distances from here on share a bucket", 1 << 20),
                m.relative.max_distance);
      });
  v.value(option("norm", "normalization"), m.norm);
  v.value(option("norm_position", "before each sublayer, or after the residual sum"),
          m.norm_position);
  v.value(Field{.name = "norm_eps",
                .help = "added to the variance",
                .kind = FieldKind::real,
                .low = 0,
                .low_open = true},
          m.norm_eps);
  v.value(option("activation", "of the feed-forward network"), m.activation);
  v.value(flag("bias", "linear layers and layernorms have biases"), m.bias);
  v.value(with_word(option("qkv_bias",
                           "of the layers that make queries, keys and values; auto: as `bias`"),
                    "auto"),
          m.qkv_bias);
  v.value(flag("qk_norm", "a norm of each head's queries and keys, before rotary positions"),
          m.qk_norm);
}

void describe_embeddings_and_head(ModelConfig& m, FieldVisitor& v) {
  v.value(option("tie_embeddings",
                 "the output layer shares the token embedding; encoder_decoder: all: source, "
                 "target and output; inputs: source and target; decoder: target and output; none"),
          m.tie_embeddings);
  v.value(flag("scale_embeddings", "multiplies token embeddings by sqrt(d_model)"),
          m.scale_embeddings);
  v.value(flag("embedding_norm", "a norm after the embeddings"), m.embedding_norm);
  v.value(number("decoder_start", -1,
                 "encoder_decoder: id that begins a target; -1: the tokenizer's begin"),
          m.decoder_start);
  v.value(number("padding_idx", -1,
                 "id whose embedding gets no gradient as an input, as in PyTorch; -1: none"),
          m.padding_idx);
  v.value(number("type_vocab_size", 0, "encoder: kinds of segments that have an embedding; 0: none",
                 1 << 16),
          m.type_vocab_size);
  v.value(flag("head_transform",
               "encoder: a dense layer, the activation and a norm before the output layer"),
          m.head_transform);
  v.value(flag("next_sentence",
               "encoder: has BERT's head for whether the second segment follows the first, which "
               "`data.train.next_sentence` trains"),
          m.next_sentence);
  v.value(
      with_word(option("head_bias", "of the output layer; auto: as `bias` where it is not tied"),
                "auto"),
      m.head_bias);
  v.value(flag("scale_attention", "divides attention scores by sqrt(d_head)"), m.scale_attention);
  v.value(flag("scale_logits", "divides the hidden state by sqrt(d_model) before the output layer"),
          m.scale_logits);
  v.value(Field{.name = "init_std",
                .help = "standard deviation of initial weights",
                .kind = FieldKind::real,
                .low = 0,
                .low_open = true},
          m.init_std);
}

}  // namespace

void describe(ModelConfig& m, FieldVisitor& v) {
  static const std::vector<std::string> names = preset_names();
  v.value(required(option("family",
                          "encoder: predicts masked tokens; decoder: the next token; "
                          "encoder_decoder: a target from a source")),
          m.family);
  v.value(with_word(choice("preset", std::vector<std::string_view>(names.begin(), names.end()),
                           "fills this section; anything written beside it wins"),
                    "none"),
          m.preset);
  v.value(text("init",
               "first weights: random, or a Hugging Face directory or a checkpoint, which also "
               "give the shape"),
          m.init);
  describe_shape(m, v);
  describe_layers(m, v);
  describe_embeddings_and_head(m, v);
  describe_dropout(m.dropout, v);
}

}  // namespace tfm::config
