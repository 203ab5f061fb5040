#include "data/denoise.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "core/error.h"
#include "data/sides.h"
#include "data/source_files.h"

namespace tfm::data {
namespace {

// Lengths of spans that hide `hidden` tokens, in any order; never more spans than tokens.
std::vector<std::int64_t> infill_spans(std::int64_t hidden, double mean, Draws& draws) {
  std::vector<std::int64_t> spans;
  for (std::int64_t left = hidden; left > 0; left -= spans.back())
    spans.push_back(draws.poisson(mean, left));
  for (std::size_t i = spans.size(); std::ssize(spans) > hidden && i-- > 0;)
    if (spans[i] == 0) spans.erase(spans.begin() + static_cast<std::ptrdiff_t>(i));
  return spans;
}

}  // namespace

void Denoise::check_tokenizer(const tokenizer::Tokenizer& tokenizer, std::int64_t vocab_size,
                              std::int64_t begin) {
  const SentenceIds special = sentence_ids(tokenizer, begin);
  check_fits("the token that begins a target", special.begin, vocab_size);
  check_fits("the end-of-sequence token", special.end, vocab_size);
  const auto mask = tokenizer.special_ids().mask;
  if (!mask)
    throw Error(ExitCode::usage,
                "data.tokenizer has no mask token; expected a vocabulary with <mask> or [MASK], or "
                "`bytes`");
  check_fits("the mask token", *mask, vocab_size);
}

Denoise::Denoise(const Source& source, Sampler sampler, const tokenizer::Tokenizer& tokenizer,
                 std::int64_t global_batch, const Options& options, bool endless)
    : length_(source.seq_len()), text_(source, sampler, global_batch, endless), options_(options) {
  check_tokenizer(tokenizer, options.vocab_size, options.begin);
  special_ = sentence_ids(tokenizer, options.begin);
  mask_ = *tokenizer.special_ids().mask;
  if (options.noise.whole_words || options.noise.permute_sentences > 0) words_.emplace(tokenizer);
}

Denoise::Ids Denoise::permuted(const Ids& text, Draws& draws) const {
  std::vector<std::size_t> starts{0};
  for (std::size_t i = 1; i < text.size(); ++i)
    if (words_->begins_sentence(text[i - 1], text[i])) starts.push_back(i);
  const auto sentences = std::ssize(starts);
  starts.push_back(text.size());
  const auto moved = static_cast<std::int64_t>(
      std::ceil(static_cast<double>(sentences) * options_.noise.permute_sentences));
  const std::vector<std::int64_t> from = draws.chosen(sentences, moved);
  std::vector<std::int64_t> to = from;
  std::ranges::sort(to);
  std::vector<std::size_t> order(starts.size() - 1);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i)
    order[static_cast<std::size_t>(to[i])] = static_cast<std::size_t>(from[i]);
  Ids out;
  for (const std::size_t s : order)
    out.insert(out.end(), text.begin() + static_cast<std::ptrdiff_t>(starts[s]),
               text.begin() + static_cast<std::ptrdiff_t>(starts[s + 1]));
  return out;
}

Denoise::Ids Denoise::infilled(const Ids& text, Draws& draws) const {
  std::vector<std::size_t> units;  // where tokens or words begin, and the end
  for (std::size_t i = 0; i < text.size(); ++i)
    if (i == 0 || !options_.noise.whole_words || words_->begins_word(text[i - 1], text[i]))
      units.push_back(i);
  const std::int64_t count = std::ssize(units),
                     hidden = std::max<std::int64_t>(
                         1, std::llround(static_cast<double>(count) * options_.noise.infilled));
  units.push_back(text.size());
  std::vector<std::int64_t> spans = infill_spans(hidden, options_.noise.mean_span_length, draws);
  // Kept units and spans in a row: the places of the spans are drawn from the left.
  Ids out;
  std::size_t at = 0;
  for (std::int64_t places = count - hidden + std::ssize(spans); places > 0; --places) {
    if (draws.below(places) >= std::ssize(spans)) {
      out.insert(out.end(), text.begin() + static_cast<std::ptrdiff_t>(units[at]),
                 text.begin() + static_cast<std::ptrdiff_t>(units[at + 1]));
      ++at;
      continue;
    }
    std::swap(spans.back(), spans[static_cast<std::size_t>(draws.below(std::ssize(spans)))]);
    out.push_back(mask_);
    at += static_cast<std::size_t>(spans.back());
    spans.pop_back();
  }
  return out;
}

void Denoise::scatter(Ids& text, Draws& draws) const {
  const double masked = options_.noise.masked, deleted = options_.noise.deleted;
  if (masked + deleted == 0) return;
  Ids out;
  for (const std::int32_t id : text) {
    const double u = id == mask_ ? 2 : draws.uniform();
    if (u <= deleted) continue;
    out.push_back(u <= deleted + masked ? mask_ : id);
  }
  text = std::move(out);
}

void Denoise::fill(std::int64_t index, std::int64_t first, std::int64_t count,
                   const BatchFields& fields) const {
  Ids ids(static_cast<std::size_t>(count * length_)), next(ids.size());
  const BatchFields texts{{Field::ids, ids}, {Field::labels, next}};
  text_.fill(index, first, count, texts);
  for (std::int64_t i = 0; i < count; ++i) {
    const Ids text(ids.begin() + i * length_, ids.begin() + (i + 1) * length_);
    Draws draws(options_.seed, "denoise", index, first + i);
    Ids source = options_.noise.permute_sentences > 0 ? permuted(text, draws) : text;
    if (draws.happens(options_.noise.rotate))
      std::ranges::rotate(source, source.begin() + draws.below(length_));
    source = infilled(source, draws);
    scatter(source, draws);
    fill_sides(fields, i, count, source, text, special_);
  }
}

namespace {

class DenoiseObjective final : public Objective {
 public:
  std::string special_use(const config::ModelConfig&, const config::SourceConfig&) const override {
    return "type denoise needs the mask token";
  }
  void check_tokenizer(const config::Config& config, const config::SourceConfig&,
                       const tokenizer::Tokenizer& tokenizer) const override {
    Denoise::check_tokenizer(tokenizer, config.model.vocab_size, config.model.decoder_start);
  }
  // The end takes one place.
  std::int64_t sample_length(const config::Config& config, const config::SourceConfig&,
                             const tokenizer::Tokenizer&) const override {
    return config.train.seq_len - 1;
  }
  std::unique_ptr<Dataset> open(Opening& o) const override {
    const config::SourceConfig& c = o.source;
    const Samples s = open_samples(o, sample_length(o.config, c, o.tokenizer));
    return std::make_unique<Denoise>(
        s.source, s.sampler, o.tokenizer, o.config.train.global_batch_size,
        Denoise::Options{.noise = {.infilled = c.mask_probability,
                                   .mean_span_length = c.mean_span_length,
                                   .permute_sentences = c.permute_sentences,
                                   .rotate = c.rotate,
                                   .deleted = c.delete_tokens,
                                   .masked = c.mask_tokens,
                                   .whole_words = c.whole_words},
                         .vocab_size = o.config.model.vocab_size,
                         .seed = o.config.train.seed,
                         .begin = o.config.model.decoder_start},
        o.endless);
  }
};

}  // namespace

const Objective& denoise_objective() {
  static const DenoiseObjective objective;
  return objective;
}

}  // namespace tfm::data
