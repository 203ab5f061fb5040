#include "data/pairs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/strings.h"
#include "data/lines.h"
#include "data/sampler.h"
#include "data/sides.h"
#include "io/glob.h"
#include "text/documents.h"
#include "tokenizer/token_model.h"

namespace tfm::data {
namespace {

Lines lines_of_pairs(const std::string& path) {
  if (text::is_json_lines(path))
    throw Error(ExitCode::input,
                path + ": holds JSON lines; expected plain text for pairs, a sentence a line");
  return Lines(path);
}

}  // namespace

void each_pair(const PairSpec& spec, const PairSink& sink) {
  std::int64_t pairs = 0;
  std::string prefixed = spec.prefix;
  const auto source_of = [&](std::string_view line) -> std::string_view {
    if (spec.prefix.empty()) return line;
    prefixed.resize(spec.prefix.size());
    return prefixed += line;
  };
  if (!spec.source.empty()) {
    Lines source = lines_of_pairs(spec.source), target = lines_of_pairs(spec.target);
    bool more = source.next(), other = target.next();
    for (; more && other; more = source.next(), other = target.next(), ++pairs)
      sink(source_of(source.line()), target.line(), source.where(), target.where());
    if (more != other)
      throw Error(
          ExitCode::input,
          spec.source + " has " + std::to_string(source.count_all()) + " lines and " + spec.target +
              " has " + std::to_string(target.count_all()) +
              "; expected equal numbers: line k of one is the translation of line k of the other");
  }
  for (const std::string& path : spec.files)
    for (Lines lines = lines_of_pairs(path); lines.next(); ++pairs) {
      const std::string_view line = lines.line();
      const auto tab = line.find('\t');
      if (tab == std::string_view::npos || line.find('\t', tab + 1) != std::string_view::npos)
        throw Error(ExitCode::input, lines.where() + ": expected a source, one tab and a target");
      sink(source_of(line.substr(0, tab)), line.substr(tab + 1), lines.where(), lines.where());
    }
  if (pairs == 0)
    throw Error(ExitCode::input, (spec.files.empty() ? spec.source : spec.files[0]) +
                                     ": the file is empty; expected at least one pair");
}

Pairs::Pairs(const std::vector<PairSpec>& specs, const tokenizer::Tokenizer& tokenizer,
             std::vector<PairLength> lengths, std::int64_t vocab_size, bool shuffle,
             std::uint64_t seed, std::int64_t begin, std::int64_t source_vocab_size,
             const std::optional<PairShares>& shares, double bpe_dropout)
    : lengths_(std::move(lengths)),
      vocab_sizes_{source_vocab_size > 0 ? source_vocab_size : vocab_size, vocab_size},
      shuffle_(shuffle),
      seed_(seed),
      special_(sentence_ids(tokenizer, begin)),
      dropout_(bpe_dropout),
      tokenizers_{&tokenizer, &tokenizer.target()} {
  for (auto& s : sides_) s.push_back(0);
  for (const PairSpec& spec : specs) {
    first_.push_back(pairs());
    each_pair(spec, [&](std::string_view source, std::string_view target,
                        const std::string& source_at, const std::string& target_at) {
      add(0, source, source_at, source_vocab_size > 0 ? "source_vocab_size" : "vocab_size");
      add(1, target, target_at, "vocab_size");
    });
  }
  first_.push_back(pairs());
  if (shares) mix(*shares);
  std::vector<std::int64_t> count(lengths_.size());
  for (std::int64_t p = 0; p < pairs(); ++p) {
    const std::int64_t longest = length_of(p) + 1;
    std::size_t k = 0;
    while (k + 1 < lengths_.size() && lengths_[k].length < longest) ++k;
    shape_of_.push_back(static_cast<std::uint16_t>(k));
  }
  for (std::int64_t i = 0; i < samples(); ++i)
    ++count[shape_of_[static_cast<std::size_t>(pair_at(i))]];
  for (std::size_t k = 0; k < count.size(); ++k)
    batches_ += (count[k] + lengths_[k].sequences - 1) / lengths_[k].sequences;
}

void Pairs::mix(const PairShares& shares) {
  constexpr double kMostEpoch = 1e9;
  std::vector<std::int64_t> sizes;
  std::vector<double> weights = shares.weights;
  for (std::size_t k = 0; k + 1 < first_.size(); ++k) {
    sizes.push_back(first_[k + 1] - first_[k]);
    const std::int64_t counted =
        shares.max_examples > 0 ? std::min(sizes[k], shares.max_examples) : sizes[k];
    if (shares.weights.empty())
      weights.push_back(std::pow(static_cast<double>(counted), 1 / shares.temperature));
  }
  mixture_.emplace(weights, std::move(sizes));
  if (static_cast<double>(mixture_->samples()) > kMostEpoch)
    throw Error(ExitCode::usage, "path: a path has so small a share that an epoch would have " +
                                     std::to_string(mixture_->samples()) +
                                     " pairs; expected larger shares");
}

std::int64_t Pairs::pair_at(std::int64_t position) const {
  if (!mixture_) return position;
  const Mixture::Item item = mixture_->item(position);
  return first_[item.path] + item.index;
}

void Pairs::add(int side, std::string_view line, const std::string& where, const char* key) {
  std::vector<std::int32_t> ids = tokenizers_[side]->encode(line);
  const auto most =
      static_cast<std::size_t>(lengths_.back().length) - 1;  // begin or end takes one place
  if (ids.size() > most) ids.resize(most), ++cut_;
  std::int32_t largest = side == 0 ? special_.source_end : std::max(special_.begin, special_.end);
  for (const std::int32_t id : ids) largest = std::max(largest, id);
  check_known(largest, vocab_sizes_[side], where + ": the tokenizer", key);
  ids_[side].insert(ids_[side].end(), ids.begin(), ids.end());
  sides_[side].push_back(static_cast<std::int64_t>(ids_[side].size()));
  if (dropout_ == 0) return;
  texts_[side] += line;
  text_ends_[side].push_back(texts_[side].size());
}

std::span<const std::int32_t> Pairs::side(int side, std::int64_t pair) const {
  const auto& s = sides_[side];
  const auto at = static_cast<std::size_t>(pair);
  return std::span(ids_[side])
      .subspan(static_cast<std::size_t>(s[at]), static_cast<std::size_t>(s[at + 1] - s[at]));
}

std::int64_t Pairs::length_of(std::int64_t pair) const {
  constexpr std::int64_t kDrawn = 4, kAnyLength = std::numeric_limits<std::int64_t>::max();
  std::size_t longest = std::max(side(0, pair).size(), side(1, pair).size());
  for (std::int64_t k = 0; k < kDrawn && dropout_ > 0; ++k) {
    Draws draws(seed_, "pairs.length", k, pair);
    for (const int s : {0, 1})
      longest = std::max(longest, drawn(s, pair, kAnyLength, draws).size());
  }
  return static_cast<std::int64_t>(longest);
}

std::vector<std::int32_t> Pairs::drawn(int side, std::int64_t pair, std::int64_t most,
                                       Draws& draws) const {
  constexpr int kDrawn = 8;
  const auto at = static_cast<std::size_t>(pair);
  const std::size_t begin = at == 0 ? 0 : text_ends_[side][at - 1];
  const std::string_view text =
      std::string_view(texts_[side]).substr(begin, text_ends_[side][at] - begin);
  const tokenizer::BpeDropout dropout{dropout_, [&draws] { return draws.uniform(); }};
  for (int k = 0; k < kDrawn; ++k)
    if (auto ids = tokenizers_[side]->encode(text, dropout);
        static_cast<std::int64_t>(ids.size()) <= most)
      return ids;
  const auto ids = this->side(side, pair);
  return {ids.begin(), ids.end()};
}

std::shared_ptr<const Pairs::Epoch> Pairs::deal(std::int64_t number) const {
  auto e = std::make_shared<Epoch>();
  e->order.reserve(static_cast<std::size_t>(samples()));
  e->first.push_back(0);
  const Sampler sampler(samples(), shuffle_, seed_);
  std::vector<std::vector<std::int64_t>> waiting(lengths_.size());
  const auto emit = [&](std::size_t k) {
    e->order.insert(e->order.end(), waiting[k].begin(), waiting[k].end());
    e->first.push_back(static_cast<std::int64_t>(e->order.size()));
    e->shape.push_back(k);
    waiting[k].clear();
  };
  for (std::int64_t i = 0; i < samples(); ++i) {
    const std::int64_t pair = pair_at(sampler.sample(number * samples() + i));
    const std::size_t k = shape_of_[static_cast<std::size_t>(pair)];
    waiting[k].push_back(pair);
    if (static_cast<std::int64_t>(waiting[k].size()) == lengths_[k].sequences) emit(k);
  }
  for (std::size_t k = 0; k < waiting.size(); ++k)
    if (!waiting[k].empty()) emit(k);
  return e;
}

std::shared_ptr<const Pairs::Epoch> Pairs::epoch(std::int64_t number) const {
  const std::lock_guard lock(mutex_);
  auto& e = recent_[number];
  if (!e) e = deal(number);
  const auto found = e;
  std::erase_if(recent_, [&](const auto& other) {
    return other.first < number - 1 || other.first > number + 1;
  });
  return found;
}

Dataset::GlobalBatch Pairs::batch(std::int64_t index) const {
  const auto e = epoch(index / batches_);
  const auto at = static_cast<std::size_t>(index % batches_);
  return {e->shape[at], e->first[at + 1] - e->first[at]};
}

std::vector<std::int64_t> Pairs::items_of(std::int64_t index) const {
  const auto e = epoch(index / batches_);
  const auto at = static_cast<std::size_t>(index % batches_);
  return {e->order.begin() + e->first[at], e->order.begin() + e->first[at + 1]};
}

void Pairs::fill(std::int64_t index, std::int64_t first, std::int64_t count,
                 const BatchFields& fields) const {
  const auto e = epoch(index / batches_);
  const std::int64_t start = e->first[static_cast<std::size_t>(index % batches_)] + first;
  const std::int64_t most = lengths_[batch(index).shape].length - 1;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t pair = e->order[static_cast<std::size_t>(start + i)];
    if (dropout_ == 0) {
      fill_sides(fields, i, count, side(0, pair), side(1, pair), special_);
      continue;
    }
    Draws draws(seed_, "pairs", index, first + i);
    const auto source = drawn(0, pair, most, draws), target = drawn(1, pair, most, draws);
    fill_sides(fields, i, count, source, target, special_);
  }
}

std::vector<PairSpec> pair_files(const config::SourceConfig& c) {
  if (!c.source.empty()) return {{.source = c.source, .target = c.target, .files = {}}};
  std::vector<PairSpec> specs;
  for (const config::SourcePath& p : c.paths)
    specs.push_back({.source = p.source,
                     .target = p.target,
                     .files = p.path.empty() ? std::vector<std::string>() : io::expand_glob(p.path),
                     .prefix = p.prefix});
  return specs;
}

namespace {

class PairsObjective final : public Objective {
 public:
  void check_tokenizer(const config::Config& config, const config::SourceConfig& source,
                       const tokenizer::Tokenizer& tokenizer) const override {
    if (source.bpe_dropout > 0 && !(tokenizer.drops_merges() && tokenizer.target().drops_merges()))
      throw Error(ExitCode::usage,
                  "data.train.bpe_dropout: the tokenizer has no merges that could be dropped; "
                  "expected a tokenizer of byte-pair encoding, or bpe_dropout 0");
    const bool two = config.model.source_vocab_size > 0;
    const char* source_key = two ? "source_vocab_size" : "vocab_size";
    if (source.bpe_dropout > 0) {  // then any token may come up
      check_known(static_cast<std::int32_t>(tokenizer.vocab_size()) - 1,
                  config.model.source_vocabulary(), "data.train.bpe_dropout: the tokenizer",
                  source_key);
      check_known(static_cast<std::int32_t>(tokenizer.target().vocab_size()) - 1,
                  config.model.vocab_size, "data.train.bpe_dropout: the tokenizer", "vocab_size");
    }
    const SentenceIds special = sentence_ids(tokenizer, config.model.decoder_start);
    check_known(std::max(special.begin, special.end), config.model.vocab_size,
                "data.tokenizer: the end-of-sequence token");
    check_known(special.source_end, config.model.source_vocabulary(),
                "data.source_tokenizer: the end-of-sequence token", source_key);
  }

  // There is one for each length with train.global_batch_tokens.
  std::vector<nn::BatchShape> shapes(const config::Config& c) const override {
    const config::TrainConfig& t = c.train;
    std::vector<nn::BatchShape> all = Objective::shapes(c);
    if (t.global_batch_tokens == 0) return all;
    nn::BatchShape shape = std::exchange(all, {}).front();
    const auto add = [&](std::int64_t length) {
      shape.length = shape.source_length = length;
      shape.sequences = std::max<std::int64_t>(1, t.global_batch_tokens / length);
      all.push_back(shape);
    };
    for (std::int64_t length = 8; length < t.seq_len;
         length += std::max<std::int64_t>(8, length / 32 * 8))
      add(length);
    add(t.seq_len);
    return all;
  }

  static std::optional<PairShares> shares_of(const config::SourceConfig& c) {
    PairShares shares{.temperature = c.temperature, .max_examples = c.max_examples};
    for (const config::SourcePath& p : c.paths)
      if (c.weighted) shares.weights.push_back(p.weight);
    const bool mixes = c.weighted || c.temperature != 1 || c.max_examples > 0;
    return mixes ? std::optional(shares) : std::nullopt;
  }

  std::unique_ptr<Dataset> open(Opening& o) const override {
    std::vector<PairLength> lengths;
    for (const nn::BatchShape& s : shapes(o.config)) lengths.push_back({s.length, s.sequences});
    const std::int64_t fewest = std::ranges::min(lengths, {}, &PairLength::sequences).sequences;
    auto pairs = std::make_unique<Pairs>(
        pair_files(o.source), o.tokenizer, std::move(lengths), o.config.model.vocab_size,
        o.endless && o.source.shuffle, o.config.train.seed, o.config.model.decoder_start,
        o.config.model.source_vocab_size, o.endless ? shares_of(o.source) : std::nullopt,
        o.endless ? o.source.bpe_dropout : 0);
    o.tokens = pairs->tokens();
    if (o.endless && pairs->pairs() < fewest)
      o.note(counted(pairs->pairs(), "sentence pair") + " for batches of " +
             std::to_string(fewest) + ": no batch is full");
    if (pairs->cut() > 0)
      o.note(counted(pairs->cut(), "sentence") + " exceeded train.seq_len = " +
             std::to_string(o.config.train.seq_len) + " tokens and were truncated");
    return pairs;
  }
};

}  // namespace

const Objective& pairs_objective() {
  static const PairsObjective objective;
  return objective;
}

}  // namespace tfm::data
