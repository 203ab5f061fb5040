// Rules of a model, whatever trains it.
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

void check_heads(const ModelConfig& m, const Report& report) {
  if (m.d_head == 0 && m.n_heads > 0 && m.d_model % m.n_heads != 0)
    report({"model.n_heads", "model.d_model", "model.preset"},
           "d_model " + std::to_string(m.d_model) + " is not divisible by n_heads " +
               std::to_string(m.n_heads) + " (" + std::to_string(m.d_model) + " = " +
               std::to_string(m.d_model / m.n_heads) + " * " + std::to_string(m.n_heads) + " + " +
               std::to_string(m.d_model % m.n_heads) + "); legal values of n_heads are " +
               listed(divisors(m.d_model), m.n_heads),
           "or set d_head explicitly");
  if (m.n_kv_heads > 0 && m.n_heads % m.n_kv_heads != 0)
    report({"model.n_kv_heads", "model.n_heads", "model.preset"},
           "n_heads " + std::to_string(m.n_heads) + " is not divisible by n_kv_heads " +
               std::to_string(m.n_kv_heads) + "; legal values of n_kv_heads are " +
               listed(divisors(m.n_heads), m.n_kv_heads),
           "");
  if (m.position == Position::rope && m.d_head % 2 != 0)
    report({"model.d_head", "model.position", "model.n_heads"},
           "d_head " + std::to_string(m.d_head) +
               " is odd, but position rope rotates pairs of elements; expected an even d_head",
           "");
  if (m.position == Position::sinusoidal && m.d_model % 2 != 0)
    report({"model.d_model", "model.position"},
           "d_model " + std::to_string(m.d_model) +
               " is odd, but position sinusoidal needs pairs of elements; expected an even d_model",
           "");
  const RopeScaling& s = m.rope.scaling;
  if (m.position == Position::rope && s.factor != 1 &&
      !(s.low_freq_factor > 0 && s.low_freq_factor < s.high_freq_factor))
    report({"model.rope.scaling.low_freq_factor", "model.rope.scaling.high_freq_factor",
            "model.rope.scaling.factor"},
           "low_freq_factor " + number_text(s.low_freq_factor) + " and high_freq_factor " +
               number_text(s.high_freq_factor) +
               " are out of order; expected 0 < low_freq_factor < high_freq_factor",
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
  only(m.type_vocab_size > 0, encoder, "model.type_vocab_size", "family encoder");
  only(m.decoder_start >= 0, m.translates(), "model.decoder_start", "family encoder_decoder");
  only(m.head_transform, encoder, "model.head_transform", "family encoder");
  only(m.next_sentence, encoder, "model.next_sentence", "family encoder");
  only(m.position_offset > 0, m.position == Position::learned, "model.position_offset",
       "position learned");
  only(m.sinusoid == Sinusoid::halves, m.position == Position::sinusoidal, "model.sinusoid",
       "position sinusoidal");
}

// Numbers of bytes that are computed from far larger models would overflow.
void check_parameters(const ModelConfig& m, const Report& report) {
  constexpr double kMost = 1e16;
  const auto real = [](std::int64_t n) { return static_cast<double>(n); };
  const double heads = real(m.n_heads + m.n_kv_heads) * real(m.d_head),
               block = (m.translates() ? 4 : 2) * heads + (m.gated() ? 3 : 2) * real(m.d_ff),
               n = real(m.d_model) * (real(m.total_layers()) * block + real(m.vocab_size));
  if (n > kMost)
    report({"model.d_model", "model.n_layers", "model.d_ff", "model.n_heads", "model.d_head"},
           "d_model " + std::to_string(m.d_model) + ", " + std::to_string(m.total_layers()) +
               " layers, d_ff " + std::to_string(m.d_ff) + " and " + std::to_string(m.n_heads) +
               " heads of " + std::to_string(m.d_head) + " make more than " + number_text(kMost) +
               " parameters; expected smaller sizes",
           "");
}

}  // namespace

void fill_derived(ModelConfig& m, std::int64_t seq_len) {
  if (m.n_kv_heads == 0) m.n_kv_heads = m.n_heads;
  if (m.d_head == 0 && m.n_heads > 0 && m.d_model % m.n_heads == 0)
    m.d_head = m.d_model / m.n_heads;
  if (m.d_ff == 0) m.d_ff = m.gated() ? round_up(ceil_div(8 * m.d_model, 3), 64) : 4 * m.d_model;
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
  check_heads(m, first);
  ModelConfig copy = m;
  check_ranges([&copy](FieldVisitor& v) { describe(copy, v); },
               [&](const std::string& key, const std::string& problem) {
                 if (!wrong) first({"model." + key}, key + " " + problem, "");
               });
  if (!wrong) check_parameters(m, first);
}

}  // namespace tfm::config
