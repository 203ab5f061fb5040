#pragma once
// Texts with labels, in memory: what heads of types classify, tag and regress learn, and beside
// them a head lm. Words are tagged at their first token.
//
// An encoder reads [CLS] text [SEP], with a second text [CLS] text [SEP] pair [SEP], whose token
// types are 1 from the pair on if there are several; with RoBERTa's tokens, whose first begins any
// text, <s> text </s> </s> pair </s>; tokens are masked as in masked_lm.h if it has a head lm. A
// decoder reads text, or text, end, pair, after the tokenizer's begin-of-text id if one is asked
// for; labels are the next ids. An encoder-decoder reads text, end at its source and, as BART's
// classifier does, the same text as its target: input begin, text; labels text, end.
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/labelled_rows.h"
#include "data/masked_lm.h"
#include "data/objective.h"
#include "data/sampler.h"

namespace tfm::data {

// Sets an element of a field that a batch has.
void put(const BatchFields& fields, Field field, std::int64_t at, std::int32_t value);

// Ids around the texts of a sequence; those that are absent take no place.
struct TextFrame {
  std::optional<std::int32_t> before, between, after;
  int times_between = 1;
  std::optional<std::int32_t> target_begin;  // the encoder-decoder's
  // Ids of text in a sequence of `length`.
  std::int64_t room(std::int64_t length, bool pairs) const;
};
// Error(usage) if the tokenizer lacks an id that the family needs, or the vocabulary does.
TextFrame text_frame(const config::Config& config, bool pairs,
                     const tokenizer::Tokenizer& tokenizer);
// Whether the second text of a row is in the sequence of the first; of a head of type embed it is
// one of its own.
bool joins_pairs(const config::Config& config, const config::SourceConfig& source);

// The ids of a text, and for each of its words (words_of()) which is its first; none of a word that
// is no token. Error(input) as of Tokenizer::encode_with_cuts().
std::vector<std::int32_t> encode_words(std::string_view text, const tokenizer::Tokenizer& tokenizer,
                                       std::vector<std::optional<std::size_t>>& first);

class Labelled final : public Dataset {
 public:
  // Throws as each_labelled_row(), class_of(), number_of() and text_frame() do.
  Labelled(const config::Config& config, const config::SourceConfig& source,
           const tokenizer::Tokenizer& tokenizer, bool endless);
  // Texts alone, in order, one a line (two with a tab between them where the source has a
  // text_pair): to be predicted, which is where their labels, of the first class, say.
  Labelled(const config::Config& config, const config::SourceConfig& source,
           const tokenizer::Tokenizer& tokenizer, std::span<const std::string> lines);
  GlobalBatch batch(std::int64_t index) const override;
  std::int64_t batches() const override { return ceil_div(texts(), global_batch_); }
  void fill(std::int64_t index, std::int64_t first, std::int64_t count,
            const BatchFields& fields) const override;

  std::int64_t texts() const { return std::ssize(rows_); }
  std::int64_t tokens() const { return std::ssize(ids_); }
  std::int64_t cut() const { return cut_; }  // rows that were truncated
  std::int64_t text_begins() const { return frame_.before.has_value(); }  // position in a sequence

 private:
  struct Row {
    std::int64_t begin, second, end;  // in ids_; the second text begins at `second`
    std::int32_t label = -1;
    float number = std::numeric_limits<float>::quiet_NaN();
  };
  Labelled(const config::Config& config, const config::SourceConfig& source,
           const tokenizer::Tokenizer& tokenizer);
  void add(const LabelledRow& row, const tokenizer::Tokenizer& tokenizer);
  void fill_one(const Row& row, const RandomKey& key, std::int64_t sequence, std::int64_t at,
                const BatchFields& fields) const;

  config::Family family_;
  std::int64_t length_, vocab_size_, global_batch_, cut_ = 0;
  bool endless_ = false, pairs_, types_;
  std::uint64_t seed_;
  TextFrame frame_;
  std::optional<Masking> masking_;
  std::vector<config::HeadConfig> heads_;  // whose labels rows have
  std::vector<std::int32_t> ids_, tags_;   // tags_: empty, or the class of each id
  std::vector<Row> rows_;
  std::optional<Sampler> sampler_;
};

}  // namespace tfm::data
