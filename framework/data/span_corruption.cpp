#include "data/span_corruption.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "core/error.h"
#include "core/strings.h"
#include "data/draws.h"
#include "data/sides.h"
#include "data/source_files.h"

namespace tfm::data {
namespace {

constexpr std::int64_t kMostRaw = std::int64_t{1} << 24;  // tokens of text in a sequence

// `total` cut into `pieces` positive parts, all ways equally likely: the cuts are the places of a
// shuffled row.
std::vector<std::int64_t> random_parts(std::int64_t total, std::int64_t pieces, Draws& draws) {
  std::vector<std::int64_t> places = draws.chosen(total - 1, pieces - 1);
  for (std::int64_t& place : places) ++place;
  std::sort(places.begin(), places.end());
  places.push_back(total);
  for (std::size_t i = places.size() - 1; i > 0; --i) places[i] -= places[i - 1];
  return places;
}

}  // namespace

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
  if (source < kLeastSource)
    throw Error(ExitCode::usage, "train.seq_len " + std::to_string(source) +
                                     " is too short for span corruption; expected at least " +
                                     std::to_string(kLeastSource));
  // The source does not shrink as the text grows: the longest that fits lies in [low, high).
  std::int64_t low = 2, high = 4;
  for (; of(high).source <= source; low = high, high *= 2)
    if (high > kMostRaw)
      throw Error(ExitCode::usage, "mask_probability " + number_text(probability) +
                                       " hides so much that a sequence of train.seq_len " +
                                       std::to_string(source) + " takes more than " +
                                       std::to_string(kMostRaw) +
                                       " tokens of text; expected a smaller probability");
  while (high - low > 1) {
    const std::int64_t middle = std::midpoint(low, high);
    (of(middle).source <= source ? low : high) = middle;
  }
  return of(low);
}

void SpanCorruption::check_tokenizer(const tokenizer::Tokenizer& tokenizer, std::int64_t spans,
                                     std::int64_t vocab_size, std::int64_t begin) {
  const SentenceIds special = sentence_ids(tokenizer, begin);
  check_fits("the token that begins a target", special.begin, vocab_size);
  check_fits("the end-of-sequence token", special.end, vocab_size);
  const std::vector<std::int32_t> sentinels = tokenizer.sentinel_ids();
  if (static_cast<std::int64_t>(sentinels.size()) < spans)
    throw Error(ExitCode::usage, "data.tokenizer has " + std::to_string(sentinels.size()) +
                                     " sentinel tokens, but a sequence has " +
                                     std::to_string(spans) +
                                     " masked spans; expected <extra_id_0> to <extra_id_" +
                                     std::to_string(spans - 1) + ">, or a shorter train.seq_len");
  if (const auto used = std::span(sentinels).first(static_cast<std::size_t>(spans)); !used.empty())
    check_fits("a sentinel token", std::ranges::max(used), vocab_size);
}

SpanCorruption::SpanCorruption(const Source& source, Sampler sampler,
                               const tokenizer::Tokenizer& tokenizer, std::int64_t global_batch,
                               SpanLengths lengths, std::int64_t vocab_size, std::uint64_t seed,
                               bool endless, std::int64_t begin)
    : text_(source, sampler, global_batch, endless), lengths_(lengths), seed_(seed) {
  check_tokenizer(tokenizer, lengths.spans, vocab_size, begin);
  special_ = sentence_ids(tokenizer, begin);
  sentinels_ = tokenizer.sentinel_ids();
  sentinels_.resize(static_cast<std::size_t>(lengths.spans));
}

void SpanCorruption::fill(std::int64_t index, std::int64_t first, std::int64_t count,
                          const BatchFields& fields) const {
  const SpanLengths& l = lengths_;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count * l.raw)), next(ids.size());
  const BatchFields text{{Field::ids, ids}, {Field::labels, next}};
  text_.fill(index, first, count, text);
  for (std::int64_t i = 0; i < count; ++i) {
    Draws draws(seed_, "span_corruption", index, first + i);
    const auto hidden = random_parts(l.hidden, l.spans, draws),
               kept = random_parts(l.raw - l.hidden, l.spans, draws);
    std::vector<std::int32_t> in, out;
    const std::int32_t* next_id = ids.data() + i * l.raw;
    for (std::size_t n = 0; n < hidden.size(); ++n) {
      in.insert(in.end(), next_id, next_id + kept[n]);
      in.push_back(sentinels_[n]);
      out.push_back(sentinels_[n]);
      out.insert(out.end(), next_id + kept[n], next_id + kept[n] + hidden[n]);
      next_id += kept[n] + hidden[n];
    }
    fill_sides(fields, i, count, in, out, special_);
  }
}

namespace {

SpanLengths spans_of(const config::Config& config, const config::SourceConfig& c) {
  return span_lengths(config.train.seq_len, c.mask_probability, c.mean_span_length);
}

class SpanCorruptionObjective final : public Objective {
 public:
  std::string special_use(const config::ModelConfig&, const config::SourceConfig&) const override {
    return "type span_corruption needs the sentinel tokens";
  }
  bool check(const config::Config& config, const config::SourceConfig& source,
             const std::string& section, config::Problems& problems) const override {
    const bool is_short = config.train.seq_len < kLeastSource, train = section == "data.train";
    if (is_short && !train) return false;  // reported already
    return problems.collect(is_short ? "train.seq_len" : section + ".mask_probability",
                            [&] { spans_of(config, source); });
  }
  void check_tokenizer(const config::Config& config, const config::SourceConfig& source,
                       const tokenizer::Tokenizer& tokenizer) const override {
    SpanCorruption::check_tokenizer(tokenizer, spans_of(config, source).spans,
                                    config.model.vocab_size, config.model.decoder_start);
  }
  std::int64_t sample_length(const config::Config& config, const config::SourceConfig& source,
                             const tokenizer::Tokenizer&) const override {
    return spans_of(config, source).raw;
  }
  std::vector<nn::BatchShape> shapes(const config::Config& c) const override;
  std::int64_t most_labels(const config::Config& config,
                           const config::SourceConfig& source) const override {
    return spans_of(config, source).target;
  }
  std::unique_ptr<Dataset> open(Opening& o) const override {
    const SpanLengths spans = spans_of(o.config, o.source);
    const Samples s = open_samples(o, spans.raw);
    return std::make_unique<SpanCorruption>(
        s.source, s.sampler, o.tokenizer, o.config.train.global_batch_size, spans,
        o.config.model.vocab_size, o.config.train.seed, o.endless, o.config.model.decoder_start);
  }
};

std::vector<nn::BatchShape> SpanCorruptionObjective::shapes(const config::Config& c) const {
  const SpanLengths s = spans_of(c, c.data.train);
  // Masks of dropout depend on the padded length: with it, it is a multiple of 8 in each layout.
  const std::int64_t shards = c.parallel.sequence ? c.parallel.tensor : 1,
                     context = c.parallel.context,
                     unit = context > 1 ? context * std::lcm<std::int64_t>(2, shards) : shards;
  const std::int64_t length =
      round_up(s.target, config::drops_targets(c) ? 8 : std::lcm<std::int64_t>(8, unit));
  if (c.model.position == config::Position::learned && length > c.model.max_seq_len)
    throw Error(ExitCode::usage,
                "model.max_seq_len " + std::to_string(c.model.max_seq_len) +
                    ", the number of rows of the learned position table, is less than the " +
                    std::to_string(length) + " tokens of span_corruption's targets" +
                    (round_up(s.target, 8) <= c.model.max_seq_len
                         ? ", whose " + std::to_string(s.target) + " are padded to multiples of " +
                               std::to_string(std::lcm<std::int64_t>(8, unit)) +
                               " for parallel.tensor and parallel.context"
                         : "") +
                    "; expected at least as many, or a smaller data.train.mask_probability or "
                    "longer spans");
  return {{.sequences = c.train.global_batch_size,
           .length = length,
           .source_length = c.train.seq_len,
           .right_padded = true}};
}

}  // namespace

const Objective& span_corruption_objective() {
  static const SpanCorruptionObjective objective;
  return objective;
}

}  // namespace tfm::data
