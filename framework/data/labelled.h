#pragma once
// Texts with a class, in memory: what a head of type classify learns, and beside it a head lm.
//
// An encoder reads [CLS] text [SEP], with a second text [CLS] text [SEP] pair [SEP], whose token
// types are 1 from the pair on; tokens are masked as in masked_lm.h if it has a head lm. A decoder
// reads text, or text, end, pair, after the tokenizer's begin-of-text id if one is asked for;
// labels are the next ids. An encoder-decoder reads text, end at its source and, as BART's
// classifier does, the same text as its target: input begin, text; labels text, end.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/labelled_rows.h"
#include "data/masked_lm.h"
#include "data/objective.h"
#include "data/sampler.h"

namespace tfm::data {

// Ids around the texts of a sequence; those that are absent take no place.
struct TextFrame {
  std::optional<std::int32_t> before, between, after;
  std::optional<std::int32_t> target_begin;  // the encoder-decoder's
  // Ids of text in a sequence of `length`.
  std::int64_t room(std::int64_t length, bool pairs) const;
};
// Error(usage) if the tokenizer lacks an id that the family needs, or the vocabulary does.
TextFrame text_frame(const config::Config& config, const config::SourceConfig& source,
                     const tokenizer::Tokenizer& tokenizer);

class Labelled final : public Dataset {
 public:
  // Throws as each_labelled_row(), class_of() and text_frame() do.
  Labelled(const config::Config& config, const config::SourceConfig& source,
           const tokenizer::Tokenizer& tokenizer, bool endless);
  GlobalBatch batch(std::int64_t index) const override;
  std::int64_t batches() const override { return ceil_div(texts(), global_batch_); }
  void fill(std::int64_t index, std::int64_t first, std::int64_t count,
            const BatchFields& fields) const override;

  std::int64_t texts() const { return std::ssize(rows_); }
  std::int64_t tokens() const { return std::ssize(ids_); }
  std::int64_t cut() const { return cut_; }  // rows that were truncated

 private:
  struct Row {
    std::int64_t begin, second, end;  // in ids_; the second text begins at `second`
    std::int32_t label;
  };
  void add(const LabelledRow& row, const config::HeadConfig& head,
           const tokenizer::Tokenizer& tokenizer);
  void fill_one(const Row& row, const RandomKey& key, std::int64_t sequence, std::int64_t at,
                const BatchFields& fields) const;

  config::Family family_;
  std::int64_t length_, vocab_size_, global_batch_, cut_ = 0;
  bool endless_, pairs_;
  std::uint64_t seed_;
  TextFrame frame_;
  std::optional<Masking> masking_;
  std::vector<std::int32_t> ids_;
  std::vector<Row> rows_;
  std::optional<Sampler> sampler_;
};

}  // namespace tfm::data
