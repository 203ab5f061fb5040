#pragma once
// Prefix language modelling (Raffel et al. 2020, section 3.2.3): the beginning of a text is the
// source of an encoder-decoder, or what a decoder is given, and the rest is learned. Where it is
// cut is a function of (seed, batch, sequence) alone.
#include <optional>

#include "data/next_token.h"
#include "data/special_ids.h"
#include "tokenizer/tokenizer.h"

namespace tfm::data {

class PrefixLm final : public Dataset {
 public:
  // `source` has seq_len >= 2 and must outlive this. `special`: as of sentence_ids(), for two
  // sides.
  PrefixLm(const Source& source, Sampler sampler, std::optional<SentenceIds> special,
           std::int64_t global_batch, std::uint64_t seed, bool endless);
  GlobalBatch batch(std::int64_t index) const override { return text_.batch(index); }
  std::int64_t batches() const override { return text_.batches(); }
  // Either part has at least one token of the text, all cuts equally likely.
  void fill(std::int64_t index, std::int64_t first, std::int64_t count,
            const BatchFields& fields) const override;

 private:
  std::int64_t length_;  // of a text
  NextToken text_;
  std::optional<SentenceIds> special_;
  std::uint64_t seed_;
};

}  // namespace tfm::data
