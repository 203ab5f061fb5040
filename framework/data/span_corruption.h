#pragma once
// T5's span corruption. What is hidden is a function of (seed, batch, sequence) alone.
#include "data/next_token.h"
#include "data/special_ids.h"
#include "tokenizer/tokenizer.h"

namespace tfm::data {

// Lengths of span corruption (Raffel et al. 2020, section 3.1.4) with inputs of at most `source`
// tokens.
struct SpanLengths {
  std::int64_t raw = 0;     // tokens of text in a sequence
  std::int64_t hidden = 0;  // hidden tokens of these
  std::int64_t spans = 0;
  std::int64_t source = 0;  // raw - hidden + spans + end
  std::int64_t target = 0;  // hidden + spans + end
};
inline constexpr std::int64_t kLeastSource = 3;
SpanLengths span_lengths(std::int64_t source, double probability, double mean_span_length);

// Each span is replaced by a sentinel; the target lists each sentinel followed by the tokens that
// it stands for. The lengths of spans, and of the text between them, are drawn uniformly from all
// ways to cut the totals into as many pieces.
class SpanCorruption final : public Dataset {
 public:
  // `source` has seq_len = lengths.raw and must outlive this; `begin` as for sentence_ids.
  // Error(usage) for a tokenizer without sentinels or end.
  SpanCorruption(const Source& source, Sampler sampler, const tokenizer::Tokenizer& tokenizer,
                 std::int64_t global_batch, SpanLengths lengths, std::int64_t vocab_size,
                 std::uint64_t seed, bool endless, std::int64_t begin = -1);
  // Checks the constructor's requirements on the tokenizer.
  static void check_tokenizer(const tokenizer::Tokenizer& tokenizer, std::int64_t spans,
                              std::int64_t vocab_size, std::int64_t begin);
  GlobalBatch batch(std::int64_t index) const override { return text_.batch(index); }
  std::int64_t batches() const override { return text_.batches(); }
  void fill(std::int64_t index, std::int64_t first, std::int64_t count,
            const BatchFields& fields) const override;

 private:
  NextToken text_;
  SpanLengths lengths_;
  std::uint64_t seed_;
  SentenceIds special_;
  std::vector<std::int32_t> sentinels_;
};

}  // namespace tfm::data
