#include "data/labelled.h"

#include <algorithm>

#include "core/error.h"
#include "core/strings.h"
#include "data/special_ids.h"
#include "io/glob.h"

namespace tfm::data {
namespace {

const config::HeadConfig& head_of(const config::Config& config) {
  const config::HeadConfig* head = config.model.head_of_type("classify");
  TFM_CHECK(head, "labelled data for a model without a classifier");
  return *head;
}

void put(const BatchFields& fields, Field field, std::int64_t at, std::int32_t value) {
  if (const auto found = fields.find(field); found != fields.end())
    found->second[static_cast<std::size_t>(at)] = value;
}

}  // namespace

std::int64_t TextFrame::room(std::int64_t length, bool pairs) const {
  // A target has an id before the text, and none after it.
  const int around = target_begin ? 1 : before.has_value() + after.has_value();
  return length - around - (pairs && between);
}

TextFrame text_frame(const config::Config& config, const config::SourceConfig& source,
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
  } else if (m.translates()) {
    const SentenceIds ids = sentence_ids(tokenizer, m.decoder_start);
    frame.between = frame.after = fits("the token that ends a sequence", ids.end);
    frame.target_begin = fits("the token that begins a target", ids.begin);
  } else {
    frame.before = fits("the begin-of-text token",
                        document_begin(config.data.add_begin, tokenizer, "data.tokenizer"));
    if (source.text_pair.empty()) return frame;
    frame.between = fits("the token between two texts", tokenizer.document_end());
    if (!frame.between)
      throw Error(ExitCode::usage,
                  "text_pair: data.tokenizer has no token that ends a text; expected a vocabulary "
                  "with <|endoftext|>, <|end_of_text|>, </s> or <eos>");
  }
  return frame;
}

Labelled::Labelled(const config::Config& config, const config::SourceConfig& source,
                   const tokenizer::Tokenizer& tokenizer, bool endless)
    : family_(config.model.family),
      length_(config.train.seq_len),
      vocab_size_(config.model.vocab_size),
      global_batch_(config.train.global_batch_size),
      endless_(endless),
      pairs_(!source.text_pair.empty()),
      seed_(config.train.seed),
      frame_(text_frame(config, source, tokenizer)) {
  if (source.mask_probability > 0) {
    MaskedLm::check_tokenizer(tokenizer, vocab_size_, false);
    masking_ = {source.mask_probability, *tokenizer.special_ids().mask, vocab_size_};
  }
  const config::HeadConfig& head = head_of(config);
  for (const config::SourcePath& path : source.paths)
    for (const std::string& file : io::expand_glob(path.path))
      each_labelled_row(file, source, [&](const LabelledRow& row) {
        add(row, head, tokenizer);
        return true;
      });
  sampler_.emplace(texts(), endless && source.shuffle, seed_);
}

// The longer text is truncated first where both do not fit.
void Labelled::add(const LabelledRow& row, const config::HeadConfig& head,
                   const tokenizer::Tokenizer& tokenizer) {
  std::vector<std::int32_t> text = tokenizer.encode(row.text), pair;
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
  const Row at{tokens(), tokens() + std::ssize(text),
               tokens() + std::ssize(text) + std::ssize(pair), class_of(row, head)};
  for (const std::vector<std::int32_t>& ids : {text, pair}) {
    if (!ids.empty())
      check_known(*std::ranges::max_element(ids), vocab_size_, row.where + ": the tokenizer");
    ids_.insert(ids_.end(), ids.begin(), ids.end());
  }
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
  std::vector<std::int32_t> ids;
  if (frame_.before) ids.push_back(*frame_.before);
  ids.insert(ids.end(), ids_.begin() + row.begin, ids_.begin() + row.second);
  if (pairs_) ids.push_back(*frame_.between);
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
      if (pairs_ && t >= second) put(fields, Field::token_types, place, 1);
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
    text_frame(config, source, tokenizer);
    if (source.mask_probability > 0)
      MaskedLm::check_tokenizer(tokenizer, config.model.vocab_size, false);
  }
  void check_file(const std::string& path, const config::SourceConfig& source) const override {
    check_labelled_file(path, source);
  }
  std::int64_t sample_length(const config::Config& config, const config::SourceConfig& source,
                             const tokenizer::Tokenizer& tokenizer) const override {
    const bool pairs = !source.text_pair.empty();
    return text_frame(config, source, tokenizer).room(config.train.seq_len, pairs) - pairs;
  }
  double labelled(const config::SourceConfig& source) const override {
    return source.mask_probability > 0 ? source.mask_probability : 1;
  }
  std::unique_ptr<Dataset> open(Opening& o) const override {
    auto texts = std::make_unique<Labelled>(o.config, o.source, o.tokenizer, o.endless);
    o.tokens = texts->tokens();
    if (o.endless && texts->texts() < o.config.train.global_batch_size)
      o.note(counted(texts->texts(), "text") + " for a train.global_batch_size of " +
             std::to_string(o.config.train.global_batch_size) + ": batches repeat texts");
    if (texts->cut() > 0)
      o.note(counted(texts->cut(), "text") + " exceeded train.seq_len = " +
             std::to_string(o.config.train.seq_len) + " tokens and were truncated");
    return texts;
  }
};

}  // namespace

const Objective& labelled_objective() {
  static const LabelledObjective objective;
  return objective;
}

}  // namespace tfm::data
