#include "data/embedding_texts.h"

#include <algorithm>

#include "core/error.h"
#include "core/strings.h"
#include "data/special_ids.h"
#include "io/glob.h"

namespace tfm::data {
namespace {

void each_row(const config::SourceConfig& source, const LabelledSink& sink) {
  for (const config::SourcePath& path : source.paths)
    for (const std::string& file : io::expand_glob(path.path))
      each_labelled_row(file, source, {}, sink);
}

}  // namespace

EmbeddingTexts::EmbeddingTexts(const config::Config& config, const tokenizer::Tokenizer& tokenizer,
                               std::int64_t texts_of_row)
    : length_(config.train.seq_len),
      vocab_size_(config.model.vocab_size),
      global_batch_(config.train.global_batch_size),
      texts_(texts_of_row),
      group_(global_batch_ / texts_),
      seed_(config.train.seed),
      frame_(text_frame(config, false, tokenizer)) {
  if (const config::HeadConfig* head = config.model.head_of_type("embed"); head && head->group > 0)
    group_ = head->group;
}

EmbeddingTexts::EmbeddingTexts(const config::Config& config, const config::SourceConfig& source,
                               const tokenizer::Tokenizer& tokenizer, bool endless)
    : EmbeddingTexts(config, tokenizer, source.texts_of_pair()) {
  endless_ = endless;
  each_row(source, [&](const LabelledRow& row) {
    add(row.text, row.where, tokenizer);
    add(row.pair, row.where, tokenizer);
    if (texts_ > 2) add(row.negative, row.where, tokenizer);
    return true;
  });
  const std::int64_t rows = texts() / texts_, of_batch = global_batch_ / texts_;
  if (rows < of_batch)
    throw Error(ExitCode::input, source.paths.front().path + ": found " + counted(rows, "row") +
                                     "; expected at least the " + std::to_string(of_batch) +
                                     " of a batch (train.global_batch_size " +
                                     std::to_string(global_batch_) + " / " +
                                     std::to_string(texts_) +
                                     " texts), or a document would be its own negative");
  sampler_.emplace(rows, endless && source.shuffle, seed_);
}

EmbeddingTexts::EmbeddingTexts(const config::Config& config, const tokenizer::Tokenizer& tokenizer,
                               std::span<const std::string> texts)
    : EmbeddingTexts(config, tokenizer, 1) {
  for (std::size_t i = 0; i < texts.size(); ++i)
    add(texts[i], "text " + std::to_string(i + 1), tokenizer);
  sampler_.emplace(this->texts(), false, seed_);
}

void EmbeddingTexts::add(std::string_view text, const std::string& where,
                         const tokenizer::Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids = tokenizer.encode(text);
  if (ids.empty()) throw Error(ExitCode::input, where + ": the tokenizer makes no ids of the text");
  check_known(*std::ranges::max_element(ids), vocab_size_, where + ": the tokenizer");
  if (const std::int64_t room = frame_.room(length_, false); std::ssize(ids) > room) {
    ++cut_;
    ids.resize(static_cast<std::size_t>(room));
  }
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  ends_.push_back(std::ssize(ids_));
}

Dataset::GlobalBatch EmbeddingTexts::batch(std::int64_t index) const {
  if (texts_ > 1) return {0, global_batch_};
  return {0, std::clamp<std::int64_t>(texts() - index * global_batch_, 0, global_batch_)};
}

void EmbeddingTexts::fill(std::int64_t index, std::int64_t first, std::int64_t count,
                          const BatchFields& fields) const {
  for (const auto& [field, values] : fields) std::ranges::fill(values, info_of(field).padding);
  const std::int64_t rows = texts() / texts_, of_batch = global_batch_ / texts_,
                     begin = endless_ ? index / batches() * rows + index % batches() * of_batch
                                      : index * of_batch;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = (first + i) / texts_, of_row = (first + i) % texts_,
                       text = sampler_->sample(begin + row) * texts_ + of_row;
    if (texts_ > 1 && of_row == 0 && (endless_ || begin + row < rows))
      put(fields, Field::positives, i, static_cast<std::int32_t>(row % group_ * (texts_ - 1)));
    std::int64_t at = i * length_;
    const auto add = [&](std::int32_t id) {
      put(fields, Field::ids, at, id);
      put(fields, Field::mask, at++, 0);
    };
    if (frame_.before) add(*frame_.before);
    const auto t = static_cast<std::size_t>(text);
    for (std::int64_t k = t == 0 ? 0 : ends_[t - 1]; k < ends_[t]; ++k)
      add(ids_[static_cast<std::size_t>(k)]);
    if (frame_.after) add(*frame_.after);
  }
}

TextPairs text_pairs(const config::SourceConfig& source) {
  TextPairs all;
  each_row(source, [&](const LabelledRow& row) {
    all.queries.emplace_back(row.text);
    all.documents.emplace_back(row.pair);
    return true;
  });
  return all;
}

}  // namespace tfm::data
