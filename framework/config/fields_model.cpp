// Keys of `model`.
#include "config/field_kinds.h"
#include "config/fields.h"

namespace tfm::config {

using namespace field;

namespace {

void describe_shape(ModelConfig& m, FieldVisitor& v) {
  v.value(required(number(
              "vocab_size", 1,
              "number of rows of the token embedding; must cover every id of the tokenizer")),
          m.vocab_size);
  v.value(number("source_vocab_size", 0,
                 "encoder_decoder: rows of an embedding of the encoder's own, for sources of "
                 "another vocabulary; 0: both sides have `vocab_size`"),
          m.source_vocab_size);
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
  v.value(derived(number("max_seq_len", 1,
                         "maximum sequence length; number of rows of a learned position table"),
                  "`train.seq_len`"),
          m.max_seq_len);
}

// A list of factors of frequencies.
void describe_factors(std::vector<double>& factors, const Field& f, FieldVisitor& v) {
  v.special(f, {.type = "a list of numbers > 0",
                .read =
                    [&factors, f](FieldReader& reader, const YamlNode& node) {
                      if (node.kind != YamlNode::Kind::sequence)
                        return reader.error(f, node,
                                            "found " + describe(node) +
                                                "; expected a list of numbers, such as [1, 1.5]");
                      factors.assign(node.items.size(), 0);
                      for (std::size_t i = 0; i < factors.size(); ++i)
                        reader.read_value(f, node.items[i], factors[i]);
                    },
                .flow =
                    [&factors] {
                      std::string all;
                      for (const double x : factors)
                        all += (all.empty() ? "" : ", ") + number_text(x);
                      return "[" + all + "]";
                    },
                .item = f,
                .single = false,
                .most = kAnyNumber});
}

void describe_positions(ModelConfig& m, FieldVisitor& v) {
  v.value(
      number("position_offset", 0,
             "learned, sinusoidal: row of the position table used by the first position; BART: 2",
             1 << 20),
      m.position_offset);
  v.value(option("sinusoid",
                 "order within a sinusoidal encoding: sines and cosines alternate, or all sines "
                 "precede all cosines; tensor2tensor: the latter, with frequencies that end at "
                 "1/10000, as M2M100"),
          m.sinusoid);
  v.section(
      section("longrope",
              "divisors of frequencies, one for each pair of columns that turn, "
              "for `rope.scaling.type: longrope`"),
      [&m](FieldVisitor& r) {
        const auto factors = [&r](std::vector<double>& x, const char* name, const char* help) {
          describe_factors(
              x, {.name = name, .help = help, .kind = FieldKind::real, .low = 0, .low_open = true},
              r);
        };
        factors(m.longrope.short_factor, "short_factor",
                "in sequences of up to `rope.scaling.original_max_seq_len` positions; a "
                "generation counts all that it may come to");
        factors(m.longrope.long_factor, "long_factor", "in longer sequences");
      });
  v.section(
      section("relative",
              "relative attention bias of each head as in T5, for `position: relative`"),
      [&m](FieldVisitor& r) {
        r.value(number("buckets", 4, "number of distance buckets", 1 << 16), m.relative.buckets);
        r.value(
            number("max_distance", 4, "distances of at least this share the last bucket", 1 << 20),
            m.relative.max_distance);
      });
}

void describe_embeddings_and_head(ModelConfig& m, FieldVisitor& v) {
  v.value(option("tie_embeddings",
                 "share the token embedding with the output layer; encoder_decoder: all: source, "
                 "target and output; inputs: source and target; decoder: target and output; none"),
          m.tie_embeddings);
  v.value(option("scale_embeddings",
                 "multiply token embeddings by sqrt(d_model); rounded: by that number in the "
                 "training precision, as Gemma"),
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
  v.value(
      with_word(option("head_bias",
                       "add a bias to the output layer; auto: as `bias` unless the layer is tied; "
                       "frozen: one that is not trained, as BART's `final_logits_bias`"),
                "auto"),
      m.head_bias);
  v.value(flag("scale_logits", "divide the hidden state by sqrt(d_model) before the output layer"),
          m.scale_logits);
  v.value(real("softcap", 0, "c: a logit x of a token becomes c tanh(x / c), as Gemma 2; 0: none"),
          m.softcap);
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

std::string flow_numbers(const std::vector<double>& numbers) {
  std::string text;
  for (const double x : numbers) text += (text.empty() ? "[" : ", ") + number_text(x);
  return text + "]";
}

void describe_class_weights(std::vector<double>& weights, FieldVisitor& v) {
  const Field item{.name = "class_weights",
                   .help =
                       "classify, tag: what multiplies the loss of each class, whose mean is over "
                       "all labels; auto: 1",
                   .kind = FieldKind::real,
                   .low = 0},
      f = with_word(item, "auto");
  v.special(f, {.type = "a list of numbers >= 0, or `auto`",
                .read =
                    [&weights, f, item](FieldReader& reader, const YamlNode& node) {
                      weights.clear();
                      if (node.kind == YamlNode::Kind::scalar && node.text == f.automatic) return;
                      if (node.kind != YamlNode::Kind::sequence || node.items.empty())
                        return reader.error(f, node,
                                            "found " + describe(node) +
                                                "; expected a list of the weight of each class, "
                                                "such as [1, 2.5], or auto");
                      for (const YamlNode& n : node.items)
                        if (double weight = 0; reader.read_value(item, n, weight))
                          weights.push_back(weight);
                    },
                .flow = [&weights] { return weights.empty() ? "auto" : flow_numbers(weights); },
                .item = item,
                .single = false,
                .least = 1,
                .most = kAnyNumber});
}

void describe(HeadConfig& h, FieldVisitor& v) {
  v.value(
      required(choice("type", head_types(),
                      "lm: the token of each position; classify: the class of a sequence; tag: "
                      "the class of each word; regress: a number for a sequence; embed: a vector "
                      "for a sequence; data of type labelled trains all but lm")),
      h.type);
  v.value(with_word(text("name", "name of its metrics; auto: its type"), "auto"), h.name);
  v.value(Field{.name = "weight",
                .help = "weight of its term of the loss",
                .kind = FieldKind::real,
                .low = 0,
                .low_open = true},
          h.weight);
  v.value(
      with_word(number("classes", 2, "classify, tag: number of classes; auto: that of `labels`"),
                "auto"),
      h.classes);
  describe_names(h.labels,
                 text("labels",
                      "classify, tag: the names of the classes in the data, in the order of their "
                      "numbers; auto: the data has numbers from 0"),
                 "a list of names, such as [negative, positive], or auto", v);
  describe_class_weights(h.class_weights, v);
  v.value(
      option("pool",
             "classify, regress, embed: the hidden state that stands for a sequence: of its "
             "first token, the mean, or of its last token; auto: first for an encoder, of embed "
             "mean, else last"),
      h.pool);
  v.value(option("pooler",
                 "classify, regress: a dense layer with this activation between that state and "
                 "the output; transform (also tag): the model's activation, and a norm, as "
                 "ModernBERT; auto: tanh for the first token of an encoder (BERT's pooler), else "
                 "none"),
          h.pooler);
  v.value(flag("normalize", "embed: divide vectors by their lengths"), h.normalize);
  v.value(Field{.name = "scale",
                .help = "embed: factor of similarities in the loss, 1 / temperature",
                .kind = FieldKind::real,
                .low = 0,
                .low_open = true},
          h.scale);
  v.value(with_word(number("group", 1,
                           "embed: number of consecutive pairs of a batch whose documents are each "
                           "other's negatives; auto: all of the batch"),
                    "auto"),
          h.group);
}

std::string flow_of(const HeadConfig& h) {
  std::string text = "{type: " + h.type + ", name: " + quote_yaml(h.name);
  if (h.weight != 1) text += ", weight: " + number_text(h.weight);
  if (h.classes > 0) text += ", classes: " + std::to_string(h.classes);
  if (!h.labels.empty()) text += ", labels: " + flow_list(h.labels);
  if (!h.class_weights.empty()) text += ", class_weights: " + flow_numbers(h.class_weights);
  if (h.pool != Pool::automatic) text += ", pool: " + word(h.pool);
  if (h.pooler != Pooler::automatic) text += ", pooler: " + word(h.pooler);
  if (!h.normalize) text += ", normalize: false";
  if (h.scale != HeadConfig{}.scale) text += ", scale: " + number_text(h.scale);
  if (h.group > 0) text += ", group: " + std::to_string(h.group);
  return text + "}";
}

// The head of key `next_sentence` is kept, the last one, unless heads of labelled data take its
// place.
void describe_heads(ModelConfig& m, FieldVisitor& v) {
  std::vector<HeadConfig>& heads = m.heads;
  const Field f =
      text("heads", "what the model predicts: a list of heads, each with a term of the loss");
  v.special(f,
            {.type = "a list of heads",
             .read =
                 [&m, &heads, f](FieldReader& reader, const YamlNode& node) {
                   if (node.kind != YamlNode::Kind::sequence)
                     return reader.error(f, node,
                                         "found " + describe(node) +
                                             "; expected a list of heads, such as [{type: lm}]");
                   const bool next_sentence = m.next_sentence();
                   heads.clear();
                   for (const YamlNode& n : node.items) {
                     reader.mark_item(f, heads.size(), n.at);
                     if (n.kind != YamlNode::Kind::map) {
                       reader.error(
                           f, n, "found " + describe(n) + "; expected a head, such as {type: lm}");
                       continue;
                     }
                     HeadConfig& h = heads.emplace_back();
                     h.type.clear();
                     reader.read_section(n, "heads", [&h](FieldVisitor& s) { describe(h, s); });
                     if (h.name == kNextSentence)
                       reader.error(f, n,
                                    "the head " + quoted(h.name) +
                                        " has a key of its own; expected another name, or "
                                        "model.next_sentence true instead of it");
                   }
                   m.set_next_sentence(next_sentence && m.labelled_heads().empty() && !m.embeds());
                 },
             .flow =
                 [&heads] {
                   std::string all;
                   for (const HeadConfig& h : heads)
                     if (h.name != kNextSentence) all += (all.empty() ? "" : ", ") + flow_of(h);
                   return "[" + all + "]";
                 },
             .item = f,
             .single = false,
             .least = 1,
             .most = kAnyNumber,
             .item_keys =
                 [](FieldVisitor& inner) {
                   HeadConfig any;
                   describe(any, inner);
                 }});
  bool next_sentence = m.next_sentence();
  v.value(flag(kNextSentence,
               "encoder: add BERT's next-sentence prediction head, which "
               "`data.train.next_sentence` trains"),
          next_sentence);
  if (next_sentence != m.next_sentence()) m.set_next_sentence(next_sentence);
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
  describe_positions(m, v);
  describe_embeddings_and_head(m, v);
  describe_heads(m, v);
}

}  // namespace tfm::config
