#include "data/next_token.h"

#include <algorithm>

#include "core/error.h"
#include "core/strings.h"
#include "data/packed_text.h"
#include "data/source_files.h"
#include "data/special_ids.h"

namespace tfm::data {

NextToken::NextToken(const Source& source, Sampler sampler, std::int64_t global_batch, bool endless,
                     DocumentEnds documents, std::optional<FillInMiddle> middle)
    : source_(source),
      sampler_(sampler),
      global_batch_(global_batch),
      endless_(endless),
      documents_(documents),
      middle_(middle) {
  TFM_CHECK(global_batch > 0, "a batch needs at least one sequence");
  TFM_CHECK(sampler.samples() == source.samples(), "the sampler was made for another source");
}

Dataset::GlobalBatch NextToken::batch(std::int64_t index) const {
  if (endless_) return {0, global_batch_};
  return {0, std::clamp<std::int64_t>(source_.samples() - index * global_batch_, 0, global_batch_)};
}

std::int64_t NextToken::batches() const {
  return (source_.samples() + global_batch_ - 1) / global_batch_;
}

void NextToken::fill(std::int64_t index, std::int64_t first, std::int64_t count,
                     const BatchFields& fields) const {
  const std::int64_t t = source_.seq_len();
  TFM_CHECK(index >= 0 && first >= 0 && count >= 0 && first + count <= global_batch_,
            "the sequences lie outside the batch");
  const auto ids = fields.at(Field::ids), labels = fields.at(Field::labels);
  TFM_CHECK(static_cast<std::int64_t>(ids.size()) == count * t && labels.size() == ids.size(),
            "count * seq_len ids");
  const auto mask = fields.find(Field::mask);
  std::vector<std::int32_t> sample(static_cast<std::size_t>(t) + 1);
  std::vector<std::int64_t> starts;
  for (std::int64_t i = 0; i < count; ++i) {
    source_.read(sampler_.sample(index * global_batch_ + first + i), sample,
                 documents_.separate || middle_ ? &starts : nullptr);
    if (middle_) {
      Draws draws = middle_->draws(index, first + i);
      middle_->apply(sample, starts, draws);
    }
    std::copy_n(sample.begin(), t, ids.begin() + i * t);
    std::copy_n(sample.begin() + 1, t, labels.begin() + i * t);
    std::int32_t document = 0;
    for (std::int64_t k = 0; k < t; ++k) {
      const auto at = static_cast<std::size_t>(i * t + k);
      if (mask != fields.end()) mask->second[at] = document;
      const bool ends = documents_.separate &&
                        (ids[at] == documents_.id || std::ranges::binary_search(starts, k + 1));
      if (ends) labels[at] = -1, ++document;
    }
  }
}

namespace {

class NextTokenObjective final : public Objective {
 public:
  std::string special_use(const config::ModelConfig&,
                          const config::SourceConfig& c) const override {
    const config::FimConfig& fim = c.fim;
    const bool given = std::min({fim.prefix, fim.middle, fim.suffix, c.document_end}) >= 0;
    return fim.rate > 0 && !given ? "fim needs its special tokens and the id that ends a document"
                                  : "";
  }
  void check_tokenizer(const config::Config& config, const config::SourceConfig& source,
                       const tokenizer::Tokenizer& tokenizer) const override {
    if (source.kind().plain_text())
      document_begin(
          config.data.add_begin, tokenizer,
          "data.add_begin is true, but data.tokenizer " + config.data.tokenizer_or_bytes());
    fill_in_middle(config, source, tokenizer, document_ends(config, source, tokenizer).id);
  }
  std::int64_t sample_length(const config::Config& config, const config::SourceConfig& source,
                             const tokenizer::Tokenizer&) const override {
    return source.documents == config::Documents::packed ? 1 : config.train.seq_len;
  }
  std::unique_ptr<Dataset> open(Opening& o) const override {
    if (o.source.documents == config::Documents::packed) return open_packed(o);
    const Samples s = open_samples(o, o.config.train.seq_len);
    return std::make_unique<NextToken>(
        s.source, s.sampler, o.config.train.global_batch_size, o.endless, s.documents,
        fill_in_middle(o.config, o.source, o.tokenizer, s.documents.id));
  }

 private:
  static std::unique_ptr<Dataset> open_packed(Opening& o) {
    const config::TrainConfig& train = o.config.train;
    const auto [source, ends] =
        open_documents(o, objective_of(o.source).sample_length(o.config, o.source, o.tokenizer));
    auto packed = std::make_unique<PackedText>(
        source, ends,
        PackedText::Options{train.seq_len, train.global_batch_size, o.endless, o.source.shuffle,
                            train.seed, fill_in_middle(o.config, o.source, o.tokenizer, ends.id)});
    o.note(counted(packed->documents(), "document") + " in " +
           counted(packed->sequences(), "sequence") + ", filled to " +
           printed("%.1f", 100 * packed->filled()) + " %" +
           (packed->cut() > 0
                ? "; " + counted(packed->cut(), "document") +
                      " exceeded train.seq_len = " + std::to_string(train.seq_len) + " tokens"
                : ""));
    if (o.endless && packed->sequences() < train.global_batch_size)
      o.note(counted(packed->sequences(), "sequence") + " for a train.global_batch_size of " +
             std::to_string(train.global_batch_size) + ": batches repeat sequences");
    return packed;
  }
};

}  // namespace

const Objective& next_token_objective() {
  static const NextTokenObjective objective;
  return objective;
}

}  // namespace tfm::data
