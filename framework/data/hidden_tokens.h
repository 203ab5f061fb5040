#pragma once
// Objectives that hide tokens of a text: what is hidden is a function of (seed, batch, sequence)
// alone.
#include <optional>

#include "data/batcher.h"
#include "tokenizer/tokenizer.h"

namespace tfm::data {

// BERT's masked tokens (Devlin et al. 2019): each token is chosen with `probability`; of those 80 %
// become the mask id, 10 % a random id, 10 % stay. Labels are the chosen tokens. With a tokenizer
// that has [CLS] and [SEP], they enclose each sequence and are never chosen.
//
// A sequence is one text without a sentence label, or with `next_sentence` a pair [CLS] A [SEP] B
// [SEP], token types 0 to the first [SEP] and then 1. A and B are the halves of the sample, A the
// longer by at most one; every other time by chance B is the second half of another sample of the
// epoch instead, all equally likely. Sentence labels: 0 B follows A, 1 it does not.
class MaskedTokens final : public Batcher {
 public:
  struct Options {
    std::int64_t length = 0;  // of a sequence
    std::int64_t vocab_size = 0;
    double probability = 0.15;
    std::uint64_t seed = 0;
    std::optional<std::int32_t> document_end;  // as NextToken's; [CLS] belongs to the first
                                               // document, the last [SEP] to the last
    bool next_sentence = false;
  };
  // `source` has seq_len = length - specials() and must outlive the batcher. Throws Error(usage)
  // for a tokenizer without the ids that are needed or a vocabulary too small for the mask,
  // Error(input) for pairs from one sample.
  MaskedTokens(const Source& source, SampleOrder order, const tokenizer::Tokenizer& tokenizer,
               std::int64_t global_batch, const Options& options, bool endless);
  // What the constructor asks of a tokenizer.
  static void check_tokenizer(const tokenizer::Tokenizer& tokenizer, std::int64_t vocab_size,
                              bool next_sentence);
  // Places of a sequence that [CLS] and [SEP] take; for pairs of a tokenizer without them its begin
  // and end.
  static std::int64_t specials(const tokenizer::Tokenizer& tokenizer, bool next_sentence);
  Batch batch(std::int64_t index) const override { return text_.batch(index); }
  std::int64_t batches() const override { return text_.batches(); }
  void fill(std::int64_t index, std::int64_t first, std::int64_t count,
            Fields& fields) const override;

 private:
  void pair_up(std::int64_t index, std::int64_t first, std::int64_t count, std::int64_t middle,
               std::span<std::int32_t> ids, Fields& fields) const;

  const Source& source_;
  SampleOrder order_;
  NextToken text_;
  Options options_;
  std::int64_t global_batch_;
  std::int32_t mask_;
  std::optional<std::int32_t> classify_, separate_;
};

// Lengths of span corruption (Raffel et al. 2020, section 3.1.4) with inputs of at most `source`
// tokens.
struct SpanLengths {
  std::int64_t raw = 0;     // tokens of text in a sequence
  std::int64_t hidden = 0;  // of them
  std::int64_t spans = 0;
  std::int64_t source = 0;  // raw - hidden + spans + end
  std::int64_t target = 0;  // hidden + spans + end
};
SpanLengths span_lengths(std::int64_t source, double probability, double mean_span_length);

// Spans are replaced by a sentinel each; the target names each sentinel and what it stands for.
// Lengths of spans and of the text between them are drawn evenly from all ways to cut the totals
// into as many pieces.
class SpanCorruption final : public Batcher {
 public:
  // `source` has seq_len = lengths.raw and must outlive the batcher; `begin` as for sentence_ids.
  // Throws Error(usage) for a tokenizer without sentinels or end.
  SpanCorruption(const Source& source, SampleOrder order, const tokenizer::Tokenizer& tokenizer,
                 std::int64_t global_batch, SpanLengths lengths, std::int64_t vocab_size,
                 std::uint64_t seed, bool endless, std::int64_t begin = -1);
  // What the constructor asks of a tokenizer.
  static void check_tokenizer(const tokenizer::Tokenizer& tokenizer, std::int64_t spans,
                              std::int64_t vocab_size, std::int64_t begin);
  Batch batch(std::int64_t index) const override { return text_.batch(index); }
  std::int64_t batches() const override { return text_.batches(); }
  void fill(std::int64_t index, std::int64_t first, std::int64_t count,
            Fields& fields) const override;

 private:
  NextToken text_;
  SpanLengths lengths_;
  std::uint64_t seed_;
  std::int32_t begin_, end_;
  std::vector<std::int32_t> sentinels_;
};

}  // namespace tfm::data
