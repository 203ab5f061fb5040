#include "data/hidden_tokens.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "data/pairs.h"

namespace tfm::data {
namespace {

void check_fits(const std::string& what, std::int32_t id, std::int64_t vocab_size) {
  if (id >= vocab_size)
    throw Error(ExitCode::usage, "model.vocab_size " + std::to_string(vocab_size) +
                                     " is too small for " + what + ", id " + std::to_string(id) +
                                     "; expected at least " + std::to_string(id + 1));
}

// `total` cut into `pieces` positive parts, all ways equally likely: the cuts are the places of a
// shuffled row.
std::vector<std::int64_t> random_parts(std::int64_t total, std::int64_t pieces,
                                       const RandomKey& key, std::uint64_t& at) {
  std::vector<std::int64_t> places(static_cast<std::size_t>(total - 1));
  std::iota(places.begin(), places.end(), 1);
  for (std::int64_t i = 0; i < pieces - 1; ++i) {
    const std::uint64_t left = places.size() - static_cast<std::size_t>(i);
    std::swap(places[static_cast<std::size_t>(i)],
              places[static_cast<std::size_t>(i) + key.word(at++) % left]);
  }
  places.resize(static_cast<std::size_t>(pieces - 1));
  std::sort(places.begin(), places.end());
  places.push_back(total);
  for (std::size_t i = places.size() - 1; i > 0; --i) places[i] -= places[i - 1];
  return places;
}

}  // namespace

std::int64_t MaskedTokens::specials(const tokenizer::Tokenizer& t, bool next_sentence) {
  const tokenizer::SpecialIds s = t.special_ids();
  return next_sentence ? 3 : s.classify && s.separate ? 2 : 0;
}

void MaskedTokens::check_tokenizer(const tokenizer::Tokenizer& tokenizer, std::int64_t vocab_size,
                                   bool next_sentence) {
  const tokenizer::SpecialIds s = tokenizer.special_ids();
  if (!s.mask)
    throw Error(
        ExitCode::usage,
        "data.tokenizer has no mask id; expected a vocabulary with [MASK] or <mask>, or `bytes`");
  check_fits("the mask", *s.mask, vocab_size);
  if (next_sentence && !(s.classify && s.separate) && !(s.begin && s.end))
    throw Error(ExitCode::usage,
                "next_sentence: data.tokenizer has no ids that begin and end a sentence; expected "
                "a vocabulary with [CLS] and [SEP], or `bytes`");
}

MaskedTokens::MaskedTokens(const Source& source, SampleOrder order,
                           const tokenizer::Tokenizer& tokenizer, std::int64_t global_batch,
                           const Options& options, bool endless)
    : source_(source),
      order_(order),
      text_(source, order, global_batch, endless, options.document_end),
      options_(options),
      global_batch_(global_batch) {
  check_tokenizer(tokenizer, options.vocab_size, options.next_sentence);
  const tokenizer::SpecialIds s = tokenizer.special_ids();
  mask_ = *s.mask;
  if (s.classify && s.separate) classify_ = s.classify, separate_ = s.separate;
  if (!options.next_sentence) return;
  if (!classify_) classify_ = s.begin, separate_ = s.end;
  if (source.samples() < 2)
    throw Error(ExitCode::input,
                "next_sentence: the data holds one sample only; expected another one for sentences "
                "that do not follow");
}

// Replaces second halves, the ids from `middle` on, and fills the sentences' labels.
void MaskedTokens::pair_up(std::int64_t index, std::int64_t first, std::int64_t count,
                           std::int64_t middle, std::span<std::int32_t> ids, Fields& fields) const {
  const std::int64_t inner = source_.seq_len();
  const RandomKey key{options_.seed, Purpose::data, stream_of("next_sentence"),
                      static_cast<std::uint32_t>(index)};
  const auto labels = fields.find("sentence_labels");
  std::vector<std::int32_t> other(static_cast<std::size_t>(inner) + 1);
  for (std::int64_t i = 0; i < count; ++i) {
    const Philox4 w = key.block(static_cast<std::uint64_t>(first + i));
    const bool follows = w[0] % 2 == 0;
    if (labels != fields.end()) labels->second[static_cast<std::size_t>(i)] = follows ? 0 : 1;
    if (follows) continue;
    const std::int64_t sample = order_.sample(index * global_batch_ + first + i),
                       samples = source_.samples();
    const std::uint64_t step =
        (static_cast<std::uint64_t>(w[1]) << 32 | w[2]) % static_cast<std::uint64_t>(samples - 1);
    source_.read((sample + 1 + static_cast<std::int64_t>(step)) % samples, other);
    std::copy(other.begin() + middle, other.begin() + inner, ids.begin() + i * inner + middle);
  }
}

void MaskedTokens::fill(std::int64_t index, std::int64_t first, std::int64_t count,
                        Fields& fields) const {
  const std::int64_t length = options_.length, inner = source_.seq_len(), lead = classify_ ? 1 : 0;
  const std::int64_t middle =
      options_.next_sentence ? ceil_div(inner, 2) : inner;  // where a [SEP] stands, if any
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count * inner)), next(ids.size()),
      documents(ids.size());
  Fields text{{"ids", ids}, {"labels", next}, {"mask", documents}};
  text_.fill(index, first, count, text);
  for (const auto& [name, rest] :
       {std::pair{"labels", -1}, {"sentence_labels", -1}, {"token_types", 0}, {"mask", 0}})
    if (const auto field = fields.find(name); field != fields.end())
      std::ranges::fill(field->second, rest);
  if (options_.next_sentence) pair_up(index, first, count, middle, ids, fields);
  const auto out = fields.at("ids"), labels = fields.at("labels");
  const auto mask = fields.find("mask"), types = fields.find("token_types");
  const RandomKey key{options_.seed, Purpose::data, stream_of("masked_tokens"),
                      static_cast<std::uint32_t>(index)};
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = i * length, second = row + lead + middle + 1;  // second: of a pair
    if (classify_) out[row] = *classify_, out[row + length - 1] = *separate_;
    if (options_.next_sentence) out[second - 1] = *separate_;
    if (types != fields.end() && options_.next_sentence)
      std::fill(types->second.begin() + second, types->second.begin() + row + length, 1);
    if (mask != fields.end()) mask->second[row + length - 1] = documents[(i + 1) * inner - 1];
    for (std::int64_t t = 0; t < inner; ++t) {
      const std::int32_t id = ids[i * inner + t];
      const Philox4 w = key.block(static_cast<std::uint64_t>((first + i) * inner + t));
      const std::int64_t at = t < middle ? row + lead + t : second + t - middle;
      out[at] = id;
      if (mask != fields.end()) mask->second[at] = documents[i * inner + t];
      if (id == classify_ || id == separate_ ||
          uniform_open(w[0]) > static_cast<float>(options_.probability))
        continue;
      labels[at] = id;
      if (w[1] % 10 < 8)
        out[at] = mask_;
      else if (w[1] % 10 == 8)
        out[at] = static_cast<std::int32_t>(w[2] % static_cast<std::uint64_t>(options_.vocab_size));
    }
  }
}

SpanLengths span_lengths(std::int64_t source, double probability, double mean_span_length) {
  const auto of = [&](std::int64_t raw) {
    SpanLengths s{.raw = raw};
    s.hidden =
        std::clamp<std::int64_t>(std::llround(static_cast<double>(raw) * probability), 1, raw - 1);
    s.spans =
        std::clamp<std::int64_t>(std::llround(static_cast<double>(s.hidden) / mean_span_length), 1,
                                 std::min(s.hidden, raw - s.hidden));
    s.source = raw - s.hidden + s.spans + 1;
    s.target = s.hidden + s.spans + 1;
    return s;
  };
  if (source < 3)
    throw Error(ExitCode::usage, "train.seq_len " + std::to_string(source) +
                                     " is too short for span corruption; expected at least 3");
  std::int64_t raw = 2;
  while (of(raw + 1).source <= source) ++raw;
  return of(raw);
}

void SpanCorruption::check_tokenizer(const tokenizer::Tokenizer& tokenizer, std::int64_t spans,
                                     std::int64_t vocab_size, std::int64_t begin) {
  sentence_ids(tokenizer, begin);
  const std::vector<std::int32_t> sentinels = tokenizer.sentinel_ids();
  if (static_cast<std::int64_t>(sentinels.size()) < spans)
    throw Error(ExitCode::usage, "data.tokenizer has " + std::to_string(sentinels.size()) +
                                     " sentinels, but a sequence has " + std::to_string(spans) +
                                     " hidden spans; expected <extra_id_0> to <extra_id_" +
                                     std::to_string(spans - 1) + ">, or a shorter train.seq_len");
  for (std::int64_t i = 0; i < spans; ++i)
    check_fits("a sentinel", sentinels[static_cast<std::size_t>(i)], vocab_size);
}

SpanCorruption::SpanCorruption(const Source& source, SampleOrder order,
                               const tokenizer::Tokenizer& tokenizer, std::int64_t global_batch,
                               SpanLengths lengths, std::int64_t vocab_size, std::uint64_t seed,
                               bool endless, std::int64_t begin)
    : text_(source, order, global_batch, endless), lengths_(lengths), seed_(seed) {
  check_tokenizer(tokenizer, lengths.spans, vocab_size, begin);
  const SentenceIds special = sentence_ids(tokenizer, begin);
  begin_ = special.begin, end_ = special.end;
  sentinels_ = tokenizer.sentinel_ids();
  sentinels_.resize(static_cast<std::size_t>(lengths.spans));
}

void SpanCorruption::fill(std::int64_t index, std::int64_t first, std::int64_t count,
                          Fields& fields) const {
  const SpanLengths& l = lengths_;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count * l.raw)), next(ids.size());
  Fields text{{"ids", ids}, {"labels", next}};
  text_.fill(index, first, count, text);
  const auto source = fields.at("source_ids"), target = fields.at("ids"),
             labels = fields.at("labels");
  const auto width = source.size() / static_cast<std::size_t>(count),
             target_width = target.size() / static_cast<std::size_t>(count);
  if (const auto mask = fields.find("source_mask"); mask != fields.end())
    std::fill(mask->second.begin(), mask->second.end(), -1);
  std::fill(labels.begin(), labels.end(), -1);
  for (std::int64_t i = 0; i < count; ++i) {
    const RandomKey key{seed_, Purpose::data,
                        stream_of("span_corruption." + std::to_string(first + i)),
                        static_cast<std::uint32_t>(index)};
    std::uint64_t at = 0;
    const auto hidden = random_parts(l.hidden, l.spans, key, at),
               kept = random_parts(l.raw - l.hidden, l.spans, key, at);
    std::vector<std::int32_t> in, out;
    const std::int32_t* next_id = ids.data() + i * l.raw;
    for (std::size_t n = 0; n < hidden.size(); ++n) {
      in.insert(in.end(), next_id, next_id + kept[n]);
      in.push_back(sentinels_[n]);
      out.push_back(sentinels_[n]);
      out.insert(out.end(), next_id + kept[n], next_id + kept[n] + hidden[n]);
      next_id += kept[n] + hidden[n];
    }
    in.push_back(end_), out.push_back(end_);
    const auto row = static_cast<std::size_t>(i);
    std::copy(in.begin(), in.end(), source.begin() + static_cast<std::ptrdiff_t>(row * width));
    if (const auto mask = fields.find("source_mask"); mask != fields.end())
      std::fill_n(mask->second.begin() + static_cast<std::ptrdiff_t>(row * width), in.size(), 0);
    std::copy(out.begin(), out.end(),
              labels.begin() + static_cast<std::ptrdiff_t>(row * target_width));
    target[row * target_width] = begin_;
    std::copy(out.begin(), out.end() - 1,
              target.begin() + static_cast<std::ptrdiff_t>(row * target_width) + 1);
  }
}

}  // namespace tfm::data
