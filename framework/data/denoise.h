#pragma once
// BART's denoising (Lewis et al. 2020, section 2.2): the source is a text with noise, the target
// the text. The noise is a function of (seed, batch, sequence) alone.
#include "data/draws.h"
#include "data/next_token.h"
#include "data/special_ids.h"
#include "data/words.h"

namespace tfm::data {

// In this order: sentences are shuffled; the text is rotated to begin with any of its tokens; spans
// are replaced by one mask each, lengths from Poisson's distribution and empty spans included, all
// arrangements equally likely, until `infilled` of the tokens are hidden; of the tokens that are
// left, some become masks and some are deleted.
struct Noise {
  double infilled = 0.3, mean_span_length = 3;
  double permute_sentences = 1;  // share of the sentences that change places
  double rotate = 0;             // share of the sequences
  double deleted = 0, masked = 0;
  bool whole_words = false;  // spans count words
};

class Denoise final : public Dataset {
 public:
  struct Options {
    Noise noise;
    std::int64_t vocab_size = 0;
    std::uint64_t seed = 0;
    std::int64_t begin = -1;  // as for sentence_ids
  };
  // `source` has seq_len = length - 1 and must outlive this. Error(usage) for a tokenizer without a
  // mask or end. Empty spans that would make a source longer than its text are left out.
  Denoise(const Source& source, Sampler sampler, const tokenizer::Tokenizer& tokenizer,
          std::int64_t global_batch, const Options& options, bool endless);
  // Checks the constructor's requirements on the tokenizer.
  static void check_tokenizer(const tokenizer::Tokenizer& tokenizer, std::int64_t vocab_size,
                              std::int64_t begin);
  GlobalBatch batch(std::int64_t index) const override { return text_.batch(index); }
  std::int64_t batches() const override { return text_.batches(); }
  void fill(std::int64_t index, std::int64_t first, std::int64_t count,
            const BatchFields& fields) const override;

 private:
  using Ids = std::vector<std::int32_t>;
  Ids permuted(const Ids& text, Draws& draws) const;
  Ids infilled(const Ids& text, Draws& draws) const;
  // Masks and deletes single tokens.
  void scatter(Ids& text, Draws& draws) const;

  std::int64_t length_;  // of a text
  NextToken text_;
  Options options_;
  SentenceIds special_;
  std::int32_t mask_;
  std::optional<Words> words_;
};

}  // namespace tfm::data
