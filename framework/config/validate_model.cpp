// Rules of a model, whatever trains it.
#include <set>

#include "config/fields.h"
#include "config/rules.h"

namespace tfm::config {

std::vector<std::int64_t> divisors(std::int64_t n) {
  std::vector<std::int64_t> low, high;
  for (std::int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    low.push_back(d);
    if (d * d != n) high.push_back(n / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

// At most twelve values, those nearest to `around`.
std::string listed(std::vector<std::int64_t> values, std::int64_t around) {
  constexpr std::size_t kMost = 12;
  const auto distance = [around](std::int64_t v) { return v > around ? v - around : around - v; };
  const bool cut = values.size() > kMost;
  std::stable_sort(values.begin(), values.end(),
                   [&](auto a, auto b) { return distance(a) < distance(b); });
  if (cut) values.resize(kMost);
  std::sort(values.begin(), values.end());
  return join(values) + (cut ? ", ..." : "");
}

Only only_with(const Report& report) {
  return [&report](bool given, bool fits, const std::string& key, const std::string& where,
                   const std::string& instead) {
    if (given && !fits)
      report({key, "model.preset"},
             quoted(key) + " is not valid here; expected only with " + where +
                 (instead.empty() ? "" : "; use " + instead),
             "");
  };
}

namespace {

constexpr const char* kNameLetters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

void check_heads_of_model(const ModelConfig& m, const Report& report) {
  std::set<std::string> names;
  if (m.heads.empty())
    report({"model.heads"}, "the model has no head; expected at least one, such as {type: lm}", "");
  for (std::size_t i = 0; i < m.heads.size(); ++i) {
    const HeadConfig& h = m.heads[i];
    const std::string key = "model.heads[" + std::to_string(i) + "]";
    const auto wrong = [&](const std::string& problem) {
      report({key, "model.heads"}, "head " + quoted(h.name) + ": " + problem, "");
    };
    if (!names.insert(h.name).second)
      wrong("another head has this name; expected a name of its own");
    if (std::ranges::find(m.heads, h.type, &HeadConfig::type) !=
        m.heads.begin() + static_cast<std::ptrdiff_t>(i))
      wrong("there is another head of type " + h.type + "; expected one");
    if (h.has_classes() && h.classes < 2)
      wrong("classes is missing; expected the number of classes, or labels, their names");
    if (!h.labels.empty() && h.classes != std::ssize(h.labels))
      wrong("classes is " + std::to_string(h.classes) + ", but labels has " +
            counted(std::ssize(h.labels), "name") + "; expected one for each class");
    if (std::set<std::string>(h.labels.begin(), h.labels.end()).size() != h.labels.size())
      wrong("two of its labels are equal; expected a name of its own for each class");
    if (!h.class_weights.empty() && std::ssize(h.class_weights) != h.classes)
      wrong("class_weights has " + counted(std::ssize(h.class_weights), "number") +
            "; expected one for each of " + std::to_string(h.classes) + " classes");
    const bool known = h.labelled() || h.embeds() || h.type == "lm";
    if (known && !h.has_classes() && (h.classes > 0 || !h.class_weights.empty()))
      wrong(
          "classes, labels and class_weights are keys of types classify and tag; expected one of "
          "these");
    if (known && !h.pools() && h.pool != Pool::automatic)
      wrong("pool is a key of types classify, regress and embed; expected one of these");
    const bool any_pooler = h.summarizes() || (h.type == "tag" && h.pooler == Pooler::transform);
    if (known && !any_pooler && h.pooler != Pooler::automatic && h.pooler != Pooler::none)
      wrong(
          "pooler is a key of types classify and regress, transform of tag, too; expected one of "
          "these");
    const HeadConfig usual;
    if (known && !h.embeds() && (!h.normalize || h.scale != usual.scale || h.group != usual.group))
      wrong("normalize, scale and group are keys of type embed; expected that");
    if (h.embeds() && m.translates())
      wrong("vectors are of models of families encoder and decoder; expected one of these");
    if (h.embeds() && m.heads.size() > 1)
      wrong("a model with a head of type embed has no other; expected it alone");
    if (h.type == "tag" && m.translates())
      wrong("words are tagged by models of families encoder and decoder; expected one of these");
    const std::vector<std::string_view> taken{"head",   "embedding", "layers", "scale",
                                              "pooler", "encoder",   "decoder"};
    if (std::ranges::find(taken, h.name) != taken.end() ||
        h.name.find_first_not_of(kNameLetters) != std::string::npos)
      wrong("not a valid name; expected letters, digits and _, and none of " + join(taken));
  }
}

void check_positions(const ModelConfig& m, const Report& report) {
  if (m.position == Position::sinusoidal && m.d_model % 2 != 0)
    report({"model.d_model", "model.position"},
           "d_model " + std::to_string(m.d_model) +
               " is odd, but position sinusoidal needs pairs of elements; expected an even d_model",
           "");
  for (const LayerKind& kind : m.layer_kinds)
    if (kind.layer.position != m.position &&
        (kind.layer.position == Position::learned || kind.layer.position == Position::sinusoidal))
      report({"model.layer_kinds." + kind.name + ".position", "model.position"},
             word(kind.layer.position) +
                 " positions are added to the embeddings, not in a layer; expected rope, alibi, "
                 "relative or none, or model.position " +
                 word(kind.layer.position),
             "");
  for (const auto& stack : m.stacks()) {
    const auto relative = [](const LayerConfig& l) { return l.position == Position::relative; };
    const auto first = std::ranges::find_if(stack, relative);
    for (const LayerConfig& l : stack)
      if (relative(l) && l.n_heads != first->n_heads)
        return report(
            {"model.layer_kinds", "model.position"},
            "layers with position relative share one table, a row for each head, but have " +
                std::to_string(first->n_heads) + " and " + std::to_string(l.n_heads) +
                " heads (n_heads); expected the same number",
            "");
  }
}

void check_pattern(const ModelConfig& m, const std::string& key,
                   const std::vector<std::string>& pattern, bool fits, std::int64_t layers,
                   std::set<std::string>& used, const Report& report) {
  only_with(report)(
      !pattern.empty(), fits, key,
      key == "model.layers" ? "families encoder and decoder" : "family encoder_decoder",
      key == "model.layers" ? "'encoder_layers' and 'decoder_layers'" : "'layers'");
  std::vector<std::string_view> names;
  for (const LayerKind& kind : m.layer_kinds) names.push_back(kind.name);
  for (const std::string& name : pattern) {
    used.insert(name);
    if (std::ranges::find(names, name) != names.end()) continue;
    const std::string_view near = nearest(name, names);
    report({key},
           quoted(name) + " is not a kind of layer; expected " +
               (names.empty() ? "names of model.layer_kinds, which is empty"
                              : "one of " + join(names) + " (model.layer_kinds)"),
           near.empty() ? "" : "did you mean '" + std::string(near) + "'?");
  }
  if (fits && std::ssize(pattern) > layers && layers > 0)
    report({key},
           key + " names " + std::to_string(pattern.size()) + " layers, but the stack has " +
               std::to_string(layers) + "; expected at most as many",
           "");
}

void check_kinds(const ModelConfig& m, const Report& report) {
  std::set<std::string> used;
  check_pattern(m, "model.layers", m.layers, !m.translates(), m.n_layers, used, report);
  check_pattern(m, "model.encoder_layers", m.encoder_layers, m.translates(), m.n_encoder_layers,
                used, report);
  check_pattern(m, "model.decoder_layers", m.decoder_layers, m.translates(), m.n_decoder_layers,
                used, report);
  for (const LayerKind& kind : m.layer_kinds)
    if (!used.contains(kind.name))
      report({"model.layer_kinds." + kind.name, "model.layer_kinds"},
             "no layer is of the kind " + quoted(kind.name) + "; expected its name in " +
                 (m.translates() ? "model.encoder_layers or model.decoder_layers" : "model.layers"),
             "");
}

// The encoder of an encoder_decoder sees both sides of a position.
void check_encoder(const ModelConfig& m, const Report& report) {
  if (!m.translates()) return;
  const auto stacks = m.stacks();
  for (const LayerConfig& l : stacks.front())
    if (l.attention.recurs())
      return report({"model.encoder_layers", "model.attention.type"},
                    "attention.type " + l.attention.type +
                        " passes a state from position to position, and an encoder sees both "
                        "sides; expected another type in encoder_layers",
                    "");
}

// Rejects options of another family or of another kind of position embedding.
void check_family(const ModelConfig& m, const Report& report) {
  const auto missing = [&](const std::string& key, std::int64_t value) {
    if (value == 0)
      report({key, "model"}, quoted(key) + " is missing; expected a whole number >= 1", "");
  };
  const auto only = [&](bool given, bool fits, const std::string& key, const std::string& where,
                        const std::string& instead = "") {
    only_with(report)(given, fits, key, where, instead);
  };
  if (m.translates()) {
    missing("model.n_encoder_layers", m.n_encoder_layers);
    missing("model.n_decoder_layers", m.n_decoder_layers);
  } else {
    missing("model.n_layers", m.n_layers);
    only(m.n_encoder_layers > 0, false, "model.n_encoder_layers", "family encoder_decoder",
         "'n_layers'");
    only(m.n_decoder_layers > 0, false, "model.n_decoder_layers", "family encoder_decoder",
         "'n_layers'");
    only(m.tie_embeddings == TieEmbeddings::decoder || m.tie_embeddings == TieEmbeddings::inputs,
         false, "model.tie_embeddings", "family encoder_decoder", "true or false");
  }
  if (!m.random_init() && !m.preset.empty())
    report({"model.init", "model.preset"},
           "model.init and model.preset both set the model's shape; expected only one of them, or "
           "model.preset none",
           "");
  const bool encoder = m.family == Family::encoder;
  const std::int64_t exact = m.relative.buckets / (m.decodes() ? 2 : 4);
  if (m.position == Position::relative && m.relative.max_distance <= exact)
    report({"model.relative.max_distance", "model.relative.buckets", "model.position"},
           "max_distance " + std::to_string(m.relative.max_distance) + " does not exceed the " +
               std::to_string(exact) +
               " distances that have their own bucket; expected more than " + std::to_string(exact),
           "");
  for (const auto& [key, row] :
       {std::pair{"padding_idx", m.padding_idx}, {"decoder_start", m.decoder_start}})
    if (row >= m.vocab_size && m.vocab_size > 0)
      report({std::string("model.") + key, "model.vocab_size"},
             std::string(key) + " " + std::to_string(row) +
                 " is no row of the embedding, of which there are " + std::to_string(m.vocab_size) +
                 " (vocab_size); expected less, or -1",
             "");
  only(m.source_vocab_size > 0, m.translates(), "model.source_vocab_size",
       "family encoder_decoder");
  if (m.source_vocab_size > 0 && m.padding_idx >= m.source_vocab_size)
    report({"model.padding_idx", "model.source_vocab_size"},
           "padding_idx " + std::to_string(m.padding_idx) +
               " is no row of the encoder's embedding, of which there are " +
               std::to_string(m.source_vocab_size) + " (source_vocab_size); expected less, or -1",
           "");
  using enum TieEmbeddings;
  if (m.source_vocab_size > 0 && (m.tie_embeddings == all || m.tie_embeddings == inputs))
    report({"model.tie_embeddings", "model.source_vocab_size"},
           "tie_embeddings " + word(m.tie_embeddings) +
               " gives both stacks one table, but source_vocab_size " +
               std::to_string(m.source_vocab_size) +
               " gives the encoder its own; expected tie_embeddings decoder or none",
           "");
  only(m.type_vocab_size > 0, encoder, "model.type_vocab_size", "family encoder");
  only(m.decoder_start >= 0, m.translates(), "model.decoder_start", "family encoder_decoder");
  only(m.head_transform, encoder, "model.head_transform", "family encoder");
  only(m.next_sentence(), encoder, "model.next_sentence", "family encoder");
  only(m.position_offset > 0, m.position == Position::learned || m.position == Position::sinusoidal,
       "model.position_offset", "position learned or sinusoidal");
  only(!m.longrope.short_factor.empty() || !m.longrope.long_factor.empty(),
       std::ranges::any_of(m.kinds_in_use(),
                           [](const auto& kind) {
                             const LayerConfig& l = *kind.second;
                             return l.position == Position::rope &&
                                    l.rope.scaling.type == RopeScalingType::longrope;
                           }),
       "model.longrope", "rope.scaling.type longrope");
  only(m.sinusoid != Sinusoid::interleaved, m.position == Position::sinusoidal, "model.sinusoid",
       "position sinusoidal");
}

}  // namespace

void fill_derived(ModelConfig& m, std::int64_t seq_len) {
  for (HeadConfig& h : m.heads) {
    if (h.name.empty()) h.name = h.type;
    if (h.classes == 0) h.classes = std::ssize(h.labels);
    if (!h.pools()) continue;
    if (h.pool == Pool::automatic)
      h.pool = m.family != Family::encoder ? Pool::last : h.embeds() ? Pool::mean : Pool::first;
    if (h.embeds() && h.pooler == Pooler::automatic) h.pooler = Pooler::none;
    if (h.pooler == Pooler::automatic)
      h.pooler = m.family == Family::encoder && h.pool == Pool::first ? Pooler::tanh : Pooler::none;
  }
  m.for_each_kind([&m](LayerConfig& l) {
    if (l.n_kv_heads == 0) l.n_kv_heads = l.n_heads;
    if (l.d_head == 0 && l.n_heads > 0 && m.d_model % l.n_heads == 0)
      l.d_head = m.d_model / l.n_heads;
    if (l.d_ff == 0) l.d_ff = l.gated() ? round_up(ceil_div(8 * m.d_model, 3), 64) : 4 * m.d_model;
    if (AttentionConfig& a = l.attention; a.type == "latent") {
      if (a.rope_size == 0) a.rope_size = std::max<std::int64_t>(2, l.d_head / 6 * 2);
      if (a.value_size == 0) a.value_size = l.d_head - a.rope_size;
      if (a.kv_rank == 0) a.kv_rank = 4 * a.value_size;
    } else if (a.recurs()) {
      const bool mamba = a.type == "mamba2";
      if (a.key_heads == 0) a.key_heads = mamba ? 1 : l.n_heads;
      if (a.value_size == 0)
        a.value_size = mamba && l.n_heads > 0 ? 2 * m.d_model / l.n_heads : l.d_head;
      if (a.convolution == 0) a.convolution = 4;
    }
    ExpertsConfig& e = l.experts;
    if (e.count > 0 && e.d_ff == 0) e.d_ff = l.d_ff;
    if (e.count > 0 && e.shared_d_ff == 0) e.shared_d_ff = e.shared * e.d_ff;
  });
  if (m.max_seq_len == 0) m.max_seq_len = seq_len;
  if (m.translates()) {
    if (m.n_encoder_layers == 0) m.n_encoder_layers = m.n_layers;
    if (m.n_decoder_layers == 0) m.n_decoder_layers = m.n_layers;
    if (m.tie_embeddings == TieEmbeddings::yes) m.tie_embeddings = TieEmbeddings::all;
    if (m.tie_embeddings == TieEmbeddings::no) m.tie_embeddings = TieEmbeddings::none;
  } else {
    if (m.tie_embeddings == TieEmbeddings::none) m.tie_embeddings = TieEmbeddings::no;
    if (m.tie_embeddings == TieEmbeddings::all) m.tie_embeddings = TieEmbeddings::yes;
  }
}

void check_model(const ModelConfig& m, const Report& report) {
  bool wrong = false;  // suppresses errors that follow from it
  const Report first = [&](const auto& keys, const std::string& message, const std::string& help) {
    wrong = true;
    report(keys, message, help);
  };
  check_family(m, first);
  check_kinds(m, first);
  check_encoder(m, first);
  check_heads_of_model(m, first);
  for (const auto& [path, layer] : m.kinds_in_use()) check_layer(*layer, path, m, first);
  only_with(first)(m.router_loss.rate != RouterLossConfig{}.rate,
                   m.router_loss.has_bias() && m.layers_with_experts() > 0,
                   "model.experts.balance.rate", "balance.type bias or both", "");
  check_positions(m, first);
  const auto out_of_range = [&](const std::string& path) {
    return [&, path](const std::string& key, const std::string& problem) {
      if (!wrong) first({path + key}, key + " " + problem, "");
    };
  };
  ModelConfig copy = m;
  check_ranges([&copy](FieldVisitor& v) { describe(copy, v); }, out_of_range("model."));
  for (const LayerKind& kind : m.layer_kinds)
    check_layer_ranges(kind.layer, out_of_range("model.layer_kinds." + kind.name + "."));
}

}  // namespace tfm::config
