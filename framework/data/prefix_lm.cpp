#include "data/prefix_lm.h"

#include "core/error.h"
#include "data/draws.h"
#include "data/sides.h"
#include "data/source_files.h"

namespace tfm::data {

PrefixLm::PrefixLm(const Source& source, Sampler sampler, std::optional<SentenceIds> special,
                   std::int64_t global_batch, std::uint64_t seed, bool endless)
    : length_(source.seq_len()),
      text_(source, sampler, global_batch, endless),
      special_(special),
      seed_(seed) {
  TFM_CHECK(length_ >= 2, "a text to cut has at least two tokens");
}

void PrefixLm::fill(std::int64_t index, std::int64_t first, std::int64_t count,
                    const BatchFields& fields) const {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count * length_)), next(ids.size());
  const BatchFields texts{{Field::ids, ids}, {Field::labels, next}};
  text_.fill(index, first, count, special_ ? texts : fields);
  for (std::int64_t i = 0; i < count; ++i) {
    Draws draws(seed_, "prefix_lm", index, first + i);
    const auto cut = static_cast<std::size_t>(1 + draws.below(length_ - 1));
    if (!special_) {
      if (const auto labels = fields.find(Field::labels); labels != fields.end())
        std::fill_n(labels->second.begin() + i * length_, cut - 1, -1);
      if (const auto prefix = fields.find(Field::prefix); prefix != fields.end())
        prefix->second[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(cut);
      continue;
    }
    const auto text = std::span(ids).subspan(static_cast<std::size_t>(i * length_),
                                             static_cast<std::size_t>(length_));
    fill_sides(fields, i, count, text.first(cut), text.subspan(cut), *special_);
  }
}

namespace {

class PrefixLmObjective final : public Objective {
 public:
  std::string special_use(const config::ModelConfig& m,
                          const config::SourceConfig&) const override {
    return m.translates() ? "type prefix_lm needs the ids that begin and end a target" : "";
  }
  bool check(const config::Config& config, const config::SourceConfig&, const std::string& section,
             config::Problems& problems) const override {
    if (config.train.seq_len < 2 && section != "data.train") return false;  // reported already
    return problems.collect("train.seq_len", [&] {
      if (config.train.seq_len < 2)
        throw Error(ExitCode::usage,
                    "train.seq_len 1 is too short for a text to cut; expected at least 2");
    });
  }
  void check_tokenizer(const config::Config& config, const config::SourceConfig&,
                       const tokenizer::Tokenizer& tokenizer) const override {
    if (!config.model.translates()) return;
    const SentenceIds special = sentence_ids(tokenizer, config.model.decoder_start);
    check_fits("the token that begins a target", special.begin, config.model.vocab_size);
    check_fits("the end-of-sequence token", special.end, config.model.vocab_size);
  }
  double labelled(const config::SourceConfig&) const override { return 0.5; }
  std::unique_ptr<Dataset> open(Opening& o) const override {
    const Samples s = open_samples(o, o.config.train.seq_len);
    std::optional<SentenceIds> special;
    if (o.config.model.translates())
      special = sentence_ids(o.tokenizer, o.config.model.decoder_start);
    return std::make_unique<PrefixLm>(s.source, s.sampler, special,
                                      o.config.train.global_batch_size, o.config.train.seed,
                                      o.endless);
  }
};

}  // namespace

const Objective& prefix_lm_objective() {
  static const PrefixLmObjective objective;
  return objective;
}

}  // namespace tfm::data
