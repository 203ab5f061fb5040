#include "data/masked_lm.h"

#include <algorithm>

#include "core/error.h"
#include "data/source_files.h"
#include "data/special_ids.h"

namespace tfm::data {

std::int64_t MaskedLm::specials(const tokenizer::Tokenizer& t, bool next_sentence) {
  const tokenizer::SpecialIds s = t.special_ids();
  return next_sentence ? 3 : s.classify && s.separate ? 2 : 0;
}

void MaskedLm::check_tokenizer(const tokenizer::Tokenizer& tokenizer, std::int64_t vocab_size,
                               bool next_sentence) {
  const tokenizer::SpecialIds s = tokenizer.special_ids();
  if (!s.mask)
    throw Error(ExitCode::usage,
                "data.tokenizer has no mask token; expected a vocabulary with [MASK] or <mask>, or "
                "`bytes`");
  check_fits("the mask token", *s.mask, vocab_size);
  if (next_sentence && !(s.classify && s.separate) && !(s.begin && s.end))
    throw Error(ExitCode::usage,
                "next_sentence: data.tokenizer has no tokens that begin and end a sequence; "
                "expected a vocabulary with [CLS] and [SEP], or `bytes`");
  const bool pair = s.classify && s.separate;
  if (!pair && !next_sentence) return;
  check_fits("the token that begins a sequence", pair ? *s.classify : *s.begin, vocab_size);
  check_fits("the token that ends a sequence", pair ? *s.separate : *s.end, vocab_size);
}

MaskedLm::MaskedLm(const Source& source, Sampler sampler, const tokenizer::Tokenizer& tokenizer,
                   std::int64_t global_batch, const Options& options, bool endless)
    : source_(source),
      sampler_(sampler),
      text_(source, sampler, global_batch, endless, options.documents),
      options_(options),
      global_batch_(global_batch) {
  check_tokenizer(tokenizer, options.vocab_size, options.next_sentence);
  const tokenizer::SpecialIds s = tokenizer.special_ids();
  masking_ = {options.probability, *s.mask, options.vocab_size};
  if (s.classify && s.separate) classify_ = s.classify, separate_ = s.separate;
  if (options.whole_words) words_.emplace(tokenizer);
  if (!options.next_sentence) return;
  if (!classify_) classify_ = s.begin, separate_ = s.end;
  if (source.samples() < 2)
    throw Error(ExitCode::input,
                "next_sentence: the data has only one sample; expected at least two, so that the "
                "second sentence can come from another sample");
}

// Replaces second halves, the ids from `middle` on, and fills the sentences' labels.
void MaskedLm::pair_up(std::int64_t index, std::int64_t first, std::int64_t count,
                       std::int64_t middle, std::span<std::int32_t> ids,
                       const BatchFields& fields) const {
  const std::int64_t inner = source_.seq_len();
  const RandomKey key{options_.seed, Purpose::data, stream_of("next_sentence"),
                      static_cast<std::uint32_t>(index)};
  const auto labels = fields.find(Field::sentence_labels);
  std::vector<std::int32_t> other(static_cast<std::size_t>(inner) + 1);
  for (std::int64_t i = 0; i < count; ++i) {
    const Philox4 w = key.block(static_cast<std::uint64_t>(first + i));
    const bool follows = w[0] % 2 == 0;
    if (labels != fields.end()) labels->second[static_cast<std::size_t>(i)] = follows ? 0 : 1;
    if (follows) continue;
    const std::int64_t sample = sampler_.sample(index * global_batch_ + first + i),
                       samples = source_.samples();
    const std::uint64_t step =
        (static_cast<std::uint64_t>(w[1]) << 32 | w[2]) % static_cast<std::uint64_t>(samples - 1);
    source_.read((sample + 1 + static_cast<std::int64_t>(step)) % samples, other);
    std::copy(other.begin() + middle, other.begin() + inner, ids.begin() + i * inner + middle);
  }
}

void MaskedLm::fill(std::int64_t index, std::int64_t first, std::int64_t count,
                    const BatchFields& fields) const {
  const std::int64_t length = options_.length, inner = source_.seq_len(), lead = classify_ ? 1 : 0;
  const std::int64_t middle =
      options_.next_sentence ? ceil_div(inner, 2) : inner;  // where a [SEP] stands, if any
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count * inner)), next(ids.size()),
      documents(ids.size());
  const BatchFields text{{Field::ids, ids}, {Field::labels, next}, {Field::mask, documents}};
  text_.fill(index, first, count, text);
  for (const auto& [field, values] : fields) {
    if (field == Field::labels || field == Field::sentence_labels) std::ranges::fill(values, -1);
    if (field == Field::token_types || field == Field::mask) std::ranges::fill(values, 0);
  }
  if (options_.next_sentence) pair_up(index, first, count, middle, ids, fields);
  const auto out = fields.at(Field::ids), labels = fields.at(Field::labels);
  const auto mask = fields.find(Field::mask), types = fields.find(Field::token_types);
  const RandomKey key{options_.seed, Purpose::data, stream_of("masked_tokens"),
                      static_cast<std::uint32_t>(index)};
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = i * length, second = row + lead + middle + 1;  // second: of a pair
    if (classify_) out[row] = *classify_, out[row + length - 1] = *separate_;
    if (options_.next_sentence) out[second - 1] = *separate_;
    if (types != fields.end() && options_.next_sentence)
      std::fill(types->second.begin() + second, types->second.begin() + row + length, 1);
    if (mask != fields.end()) mask->second[row + length - 1] = documents[(i + 1) * inner - 1];
    std::uint32_t choice = 0;  // of the word
    for (std::int64_t t = 0; t < inner; ++t) {
      const std::int64_t from = i * inner + t;
      const std::int32_t id = ids[from];
      Philox4 w = key.block(static_cast<std::uint64_t>((first + i) * inner + t));
      if (words_ && t != 0 && t != middle && documents[from] == documents[from - 1] &&
          !words_->begins_word(ids[from - 1], id))
        w[0] = choice;
      choice = w[0];
      const std::int64_t at = t < middle ? row + lead + t : second + t - middle;
      if (mask != fields.end()) mask->second[at] = documents[from];
      if (id == classify_ || id == separate_)
        out[at] = id;
      else
        masking_.apply(w, id, out[at], labels[at]);
    }
  }
}

namespace {

class MaskedLmObjective final : public Objective {
 public:
  std::string special_use(const config::ModelConfig&, const config::SourceConfig&) const override {
    return "type mlm needs the mask token";
  }
  void check_tokenizer(const config::Config& config, const config::SourceConfig& source,
                       const tokenizer::Tokenizer& tokenizer) const override {
    MaskedLm::check_tokenizer(tokenizer, config.model.vocab_size, source.next_sentence);
  }
  std::int64_t sample_length(const config::Config& config, const config::SourceConfig& source,
                             const tokenizer::Tokenizer& tokenizer) const override {
    return config.train.seq_len - MaskedLm::specials(tokenizer, source.next_sentence);
  }
  double labelled(const config::SourceConfig& source) const override {
    return source.mask_probability;
  }
  std::unique_ptr<Dataset> open(Opening& o) const override {
    const Samples s = open_samples(o, sample_length(o.config, o.source, o.tokenizer));
    return std::make_unique<MaskedLm>(s.source, s.sampler, o.tokenizer,
                                      o.config.train.global_batch_size,
                                      MaskedLm::Options{.length = o.config.train.seq_len,
                                                        .vocab_size = o.config.model.vocab_size,
                                                        .probability = o.source.mask_probability,
                                                        .seed = o.config.train.seed,
                                                        .documents = s.documents,
                                                        .next_sentence = o.source.next_sentence,
                                                        .whole_words = o.source.whole_words},
                                      o.endless);
  }
};

}  // namespace

const Objective& masked_lm_objective() {
  static const MaskedLmObjective objective;
  return objective;
}

}  // namespace tfm::data
