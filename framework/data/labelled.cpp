#include "data/labelled.h"

#include <algorithm>

#include "core/error.h"
#include "core/strings.h"
#include "data/embedding_texts.h"
#include "data/special_ids.h"
#include "io/glob.h"

namespace tfm::data {
void put(const BatchFields& fields, Field field, std::int64_t at, std::int32_t value) {
  if (const auto found = fields.find(field); found != fields.end())
    found->second[static_cast<std::size_t>(at)] = value;
}

namespace {

// The ids of a text, and `tags`: of the first token of each word its class, of other tokens -1.
std::vector<std::int32_t> tagged(const LabelledRow& row, const config::HeadConfig& head,
                                 std::string_view labels, bool none,
                                 const tokenizer::Tokenizer& tokenizer,
                                 std::vector<std::int32_t>& tags) {
  std::vector<std::optional<std::size_t>> first;
  std::vector<std::int32_t> ids = encode_words(row.text, tokenizer, first);
  tags.assign(ids.size(), -1);
  if (none) return ids;
  const std::vector<std::int32_t> classes = classes_of_words(row, labels, head);
  for (std::size_t w = 0; w < classes.size(); ++w)
    if (first[w]) tags[*first[w]] = classes[w];
  return ids;
}

}  // namespace

std::vector<std::int32_t> encode_words(std::string_view text, const tokenizer::Tokenizer& tokenizer,
                                       std::vector<std::optional<std::size_t>>& first) {
  // No token's place in the text is asked for where the tokenizer treats each word alone.
  const std::vector<std::string_view> words = words_of(text);
  std::vector<std::int32_t> whole = tokenizer.encode(text), apart;
  for (const std::string_view word : words) {
    const std::vector<std::int32_t> own = tokenizer.encode(word);
    first.emplace_back();
    if (!own.empty()) first.back() = apart.size();
    apart.insert(apart.end(), own.begin(), own.end());
  }
  if (apart == whole) return whole;
  first.clear();
  std::vector<std::size_t> begins;
  for (const std::string_view word : words)
    begins.push_back(static_cast<std::size_t>(word.data() - text.data()));
  std::vector<tokenizer::Tokenizer::Cut> cuts;
  std::vector<std::int32_t> ids = tokenizer.encode_with_cuts(text, begins, cuts);
  cuts.push_back({ids.size(), false});
  for (std::size_t w = 0; w < begins.size(); ++w) {
    first.emplace_back();
    if (cuts[w].tokens < cuts[w + 1].tokens) first[w] = cuts[w].tokens;
  }
  return ids;
}

std::int64_t TextFrame::room(std::int64_t length, bool pairs) const {
  // A target has an id before the text, and none after it.
  const int around = target_begin ? 1 : before.has_value() + after.has_value();
  return length - around - (pairs && between ? times_between : 0);
}

bool joins_pairs(const config::Config& config, const config::SourceConfig& source) {
  return !source.text_pair.empty() && !config.model.embeds();
}

TextFrame text_frame(const config::Config& config, bool pairs,
                     const tokenizer::Tokenizer& tokenizer) {
  const config::ModelConfig& m = config.model;
  const tokenizer::SpecialIds s = tokenizer.special_ids();
  const auto fits = [&](const std::string& what, std::optional<std::int32_t> id) {
    if (id) check_fits(what, *id, m.vocab_size);
    return id;
  };
  TextFrame frame;
  if (m.family == config::Family::encoder) {
    const bool pair = s.classify && s.separate;
    if (!pair && !(s.begin && s.end))
      throw Error(ExitCode::usage,
                  "type labelled: data.tokenizer has no tokens that begin and end a sequence; "
                  "expected a vocabulary with [CLS] and [SEP], or `bytes`");
    frame.before = fits("the token that begins a sequence", pair ? s.classify : s.begin);
    frame.between = frame.after = fits("the token that ends a sequence", pair ? s.separate : s.end);
    if (pair && s.classify == s.begin) frame.times_between = 2;
  } else if (m.translates()) {
    const SentenceIds ids = sentence_ids(tokenizer, m.decoder_start);
    frame.between = frame.after = fits("the token that ends a sequence", ids.end);
    frame.target_begin = fits("the token that begins a target", ids.begin);
  } else {
    frame.before = fits("the begin-of-text token",
                        document_begin(config.data.add_begin, tokenizer, "data.tokenizer"));
    if (!pairs) return frame;
    frame.between = fits("the token between two texts", tokenizer.document_end());
    if (!frame.between)
      throw Error(ExitCode::usage,
                  "text_pair: data.tokenizer has no token that ends a text; expected a vocabulary "
                  "with <|endoftext|>, <|end_of_text|>, </s> or <eos>");
  }
  return frame;
}

Labelled::Labelled(const config::Config& config, const config::SourceConfig& source,
                   const tokenizer::Tokenizer& tokenizer)
    : family_(config.model.family),
      length_(config.train.seq_len),
      vocab_size_(config.model.vocab_size),
      global_batch_(config.train.global_batch_size),
      pairs_(!source.text_pair.empty()),
      types_(config.model.type_vocab_size != 1),
      seed_(config.train.seed),
      frame_(text_frame(config, pairs_, tokenizer)) {
  for (const config::HeadConfig* head : config.model.labelled_heads()) heads_.push_back(*head);
  if (source.mask_probability == 0) return;
  MaskedLm::check_tokenizer(tokenizer, vocab_size_, false);
  masking_ = {source.mask_probability, *tokenizer.special_ids().mask, vocab_size_};
}

Labelled::Labelled(const config::Config& config, const config::SourceConfig& source,
                   const tokenizer::Tokenizer& tokenizer, bool endless)
    : Labelled(config, source, tokenizer) {
  endless_ = endless;
  for (const config::SourcePath& path : source.paths)
    for (const std::string& file : io::expand_glob(path.path))
      each_labelled_row(file, source, label_columns(config, source), [&](const LabelledRow& row) {
        add(row, tokenizer);
        return true;
      });
  sampler_.emplace(texts(), endless && source.shuffle, seed_);
}

Labelled::Labelled(const config::Config& config, const config::SourceConfig& source,
                   const tokenizer::Tokenizer& tokenizer, std::span<const std::string> lines)
    : Labelled(config, source, tokenizer) {
  for (config::HeadConfig& head : heads_) head.labels.clear();  // any class will do
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string_view line = lines[i];
    const std::size_t tab = pairs_ ? line.find('\t') : line.size();
    if (tab == line.npos)
      throw Error(ExitCode::input, "line " + std::to_string(i + 1) +
                                       ": no tab; expected two texts with a tab between them");
    LabelledRow row{line.substr(0, tab),
                    pairs_ ? line.substr(tab + 1) : std::string_view{},
                    {},
                    "line " + std::to_string(i + 1)};
    std::vector<std::string> labels;
    for (const config::HeadConfig& head : heads_) {
      labels.emplace_back("0");
      for (std::size_t n = words_of(row.text).size(); head.type == "tag" && n > 1; --n)
        labels.back() += " 0";
    }
    row.labels.assign(labels.begin(), labels.end());
    add(row, tokenizer);
  }
  sampler_.emplace(texts(), false, seed_);
}

// The longer text is truncated first where both do not fit.
void Labelled::add(const LabelledRow& row, const tokenizer::Tokenizer& tokenizer) {
  std::vector<std::int32_t> text, pair, tags;
  const auto tagger = std::ranges::find(heads_, "tag", &config::HeadConfig::type);
  const auto missing = [&](std::string_view label) { return is_missing(label, heads_.size()); };
  if (tagger == heads_.end()) {
    text = tokenizer.encode(row.text);
  } else {
    const std::string_view labels = row.labels[static_cast<std::size_t>(tagger - heads_.begin())];
    text = tagged(row, *tagger, labels, missing(labels), tokenizer, tags);
  }
  if (pairs_) pair = tokenizer.encode(row.pair);
  if (text.empty() || (pairs_ && pair.empty()))
    throw Error(ExitCode::input, row.where + ": the tokenizer makes no ids of the text");
  const auto room = static_cast<std::size_t>(frame_.room(length_, pairs_));
  if (text.size() + pair.size() > room) {
    ++cut_;
    const std::size_t half = pairs_ ? room / 2 : 0;
    const std::size_t of_pair =
        std::min(pair.size(), std::max(half, room - std::min(room, text.size())));
    pair.resize(of_pair);
    text.resize(std::min(text.size(), room - of_pair));
  }
  Row at{tokens(), tokens() + std::ssize(text), tokens() + std::ssize(text) + std::ssize(pair)};
  for (std::size_t h = 0; h < heads_.size(); ++h) {
    if (missing(row.labels[h])) continue;
    if (heads_[h].type == "classify") at.label = class_of(row.labels[h], row.where, heads_[h]);
    if (heads_[h].type == "regress") at.number = number_of(row.labels[h], row.where, heads_[h]);
  }
  for (const std::vector<std::int32_t>& ids : {text, pair}) {
    if (!ids.empty())
      check_known(*std::ranges::max_element(ids), vocab_size_, row.where + ": the tokenizer");
    ids_.insert(ids_.end(), ids.begin(), ids.end());
  }
  if (!tags.empty()) tags.resize(text.size()), tags_.insert(tags_.end(), tags.begin(), tags.end());
  rows_.push_back(at);
}

Dataset::GlobalBatch Labelled::batch(std::int64_t index) const {
  if (endless_) return {0, global_batch_};
  return {0, std::clamp<std::int64_t>(texts() - index * global_batch_, 0, global_batch_)};
}

void Labelled::fill(std::int64_t index, std::int64_t first, std::int64_t count,
                    const BatchFields& fields) const {
  for (const auto& [field, values] : fields) std::ranges::fill(values, info_of(field).padding);
  const RandomKey key{seed_, Purpose::data, stream_of("masked_tokens"),
                      static_cast<std::uint32_t>(index)};
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t sample = sampler_->sample(index * global_batch_ + first + i);
    fill_one(rows_[static_cast<std::size_t>(sample)], key, first + i, i, fields);
  }
}

// Fills sequence `at` of the fields; `sequence`: its index in the global batch.
void Labelled::fill_one(const Row& row, const RandomKey& key, std::int64_t sequence,
                        std::int64_t at, const BatchFields& fields) const {
  put(fields, Field::sentence_labels, at, row.label);
  put(fields, Field::numbers, at, number_element(row.number));
  std::vector<std::int32_t> ids;
  if (frame_.before) ids.push_back(*frame_.before);
  for (std::int64_t t = row.begin; t < row.second && !tags_.empty(); ++t)
    put(fields, Field::token_labels, at * length_ + std::ssize(ids) + t - row.begin,
        tags_[static_cast<std::size_t>(t)]);
  ids.insert(ids.end(), ids_.begin() + row.begin, ids_.begin() + row.second);
  if (pairs_)
    ids.insert(ids.end(), static_cast<std::size_t>(frame_.times_between), *frame_.between);
  const std::int64_t second = std::ssize(ids);
  ids.insert(ids.end(), ids_.begin() + row.second, ids_.begin() + row.end);
  const bool seq2seq = frame_.target_begin.has_value();
  std::vector<std::int32_t> next(ids.begin() + (seq2seq ? 0 : 1), ids.end());
  if (frame_.after) ids.push_back(*frame_.after);
  if (seq2seq) {
    next.push_back(ids.back());
    for (std::int64_t t = 0; t < std::ssize(ids); ++t) {
      put(fields, Field::source_ids, at * length_ + t, ids[static_cast<std::size_t>(t)]);
      put(fields, Field::source_mask, at * length_ + t, 0);
    }
    ids.insert(ids.begin(), *frame_.target_begin);
    ids.pop_back();
  }
  for (std::int64_t t = 0; t < std::ssize(ids); ++t) {
    const std::int64_t place = at * length_ + t;
    const std::int32_t id = ids[static_cast<std::size_t>(t)];
    std::int32_t input = id, label = -1;
    if (family_ != config::Family::encoder) {
      if (t < std::ssize(next)) label = next[static_cast<std::size_t>(t)];
    } else {
      if (pairs_ && types_ && t >= second) put(fields, Field::token_types, place, 1);
      if (masking_ && id != frame_.before && id != frame_.after)
        masking_->apply(key.block(static_cast<std::uint64_t>(sequence * length_ + t)), id, input,
                        label);
    }
    put(fields, Field::ids, place, input);
    put(fields, Field::labels, place, label);
    put(fields, Field::mask, place, 0);
  }
}

namespace {

class LabelledObjective final : public Objective {
 public:
  void check_tokenizer(const config::Config& config, const config::SourceConfig& source,
                       const tokenizer::Tokenizer& tokenizer) const override {
    text_frame(config, joins_pairs(config, source), tokenizer);
    if (source.mask_probability > 0)
      MaskedLm::check_tokenizer(tokenizer, config.model.vocab_size, false);
  }
  void check_file(const std::string& path, const config::Config& config,
                  const config::SourceConfig& source) const override {
    const auto heads = config.model.labelled_heads();
    each_labelled_row(path, source, label_columns(config, source), [&](const LabelledRow& row) {
      check_labels(row, heads);
      return true;
    });
  }
  std::int64_t sample_length(const config::Config& config, const config::SourceConfig& source,
                             const tokenizer::Tokenizer& tokenizer) const override {
    const bool pairs = joins_pairs(config, source);
    return text_frame(config, pairs, tokenizer).room(config.train.seq_len, pairs) - pairs;
  }
  std::vector<nn::BatchShape> shapes(const config::Config& config) const override {
    auto all = Objective::shapes(config);
    if (config.model.embeds() && !config.data.train.text_pair.empty())
      all.front().texts = config.data.train.texts_of_pair();
    return all;
  }
  double labelled(const config::SourceConfig& source) const override {
    return source.mask_probability > 0 ? source.mask_probability : 1;
  }
  std::unique_ptr<Dataset> open(Opening& o) const override {
    if (o.config.model.embeds()) {
      auto texts = std::make_unique<EmbeddingTexts>(o.config, o.source, o.tokenizer, o.endless);
      o.tokens = texts->tokens();
      note_cut(o, texts->cut());
      return texts;
    }
    auto texts = std::make_unique<Labelled>(o.config, o.source, o.tokenizer, o.endless);
    o.tokens = texts->tokens();
    if (o.endless && texts->texts() < o.config.train.global_batch_size)
      o.note(counted(texts->texts(), "text") + " for a train.global_batch_size of " +
             std::to_string(o.config.train.global_batch_size) + ": batches repeat texts");
    note_cut(o, texts->cut());
    return texts;
  }

 private:
  static void note_cut(Opening& o, std::int64_t texts) {
    if (texts > 0)
      o.note(counted(texts, "text") + " exceeded train.seq_len = " +
             std::to_string(o.config.train.seq_len) + " tokens and were truncated");
  }
};

}  // namespace

const Objective& labelled_objective() {
  static const LabelledObjective objective;
  return objective;
}

}  // namespace tfm::data
