#pragma once
// Masked language modelling and BERT's next sentence prediction. What is masked is a function of
// (seed, batch, sequence) alone.
#include "data/next_token.h"
#include "data/words.h"
#include "tokenizer/tokenizer.h"

namespace tfm::data {

// BERT's masked tokens (Devlin et al. 2019): each token is chosen with `probability`; 80 % of the
// chosen become the mask id, 10 % a random id, and 10 % stay. Labels are the chosen tokens.
struct Masking {
  double probability = 0;
  std::int32_t mask = 0;
  std::int64_t vocab_size = 0;
  // Sets the input and the label of a token by its own random words.
  void apply(const Philox4& words, std::int32_t id, std::int32_t& input,
             std::int32_t& label) const {
    input = id;
    if (uniform_open(words[0]) > static_cast<float>(probability)) return;
    label = id;
    if (words[1] % 10 < 8)
      input = mask;
    else if (words[1] % 10 == 8)
      input = static_cast<std::int32_t>(words[2] % static_cast<std::uint64_t>(vocab_size));
  }
};

// Masked tokens of text. If the tokenizer has [CLS] and [SEP], they enclose each sequence and are
// never chosen.
//
// A sequence is one text without a sentence label. With `next_sentence` it is a pair [CLS] A [SEP]
// B [SEP], with token type 0 up to the first [SEP] and 1 after it. A and B are the halves of the
// sample, A the longer by at most one. With probability 1/2, B is instead the second half of
// another sample of the epoch, all equally likely. Sentence labels: 0 if B follows A, otherwise 1.
class MaskedLm final : public Dataset {
 public:
  struct Options {
    std::int64_t length = 0;  // of a sequence
    std::int64_t vocab_size = 0;
    double probability = 0;
    std::uint64_t seed = 0;
    // As NextToken's. [CLS] belongs to the first document, the last [SEP] to the last one.
    DocumentEnds documents;
    bool next_sentence = false;
    // All tokens of a word are chosen together (BERT's whole word masking).
    bool whole_words = false;
  };
  // `source` has seq_len = length - specials() and must outlive this. Error(usage) for a tokenizer
  // without the ids that are needed or a vocabulary too small for the mask; Error(input) for pairs
  // from a single sample.
  MaskedLm(const Source& source, Sampler sampler, const tokenizer::Tokenizer& tokenizer,
           std::int64_t global_batch, const Options& options, bool endless);
  // Checks the constructor's requirements on the tokenizer.
  static void check_tokenizer(const tokenizer::Tokenizer& tokenizer, std::int64_t vocab_size,
                              bool next_sentence);
  // Number of positions taken by [CLS] and [SEP]; for pairs, by begin and end if the tokenizer has
  // no [CLS] and [SEP].
  static std::int64_t specials(const tokenizer::Tokenizer& tokenizer, bool next_sentence);
  GlobalBatch batch(std::int64_t index) const override { return text_.batch(index); }
  std::int64_t batches() const override { return text_.batches(); }
  void fill(std::int64_t index, std::int64_t first, std::int64_t count,
            const BatchFields& fields) const override;

 private:
  void pair_up(std::int64_t index, std::int64_t first, std::int64_t count, std::int64_t middle,
               std::span<std::int32_t> ids, const BatchFields& fields) const;

  const Source& source_;
  Sampler sampler_;
  NextToken text_;
  Options options_;
  std::int64_t global_batch_;
  Masking masking_;
  std::optional<std::int32_t> classify_, separate_;
  std::optional<Words> words_;
};

}  // namespace tfm::data
