#pragma once
// Fill in the middle (Bavarian et al. 2022): a decoder learns the middle of a document from what is
// before and behind it.
#include <optional>
#include <span>

#include "config/config.h"
#include "data/draws.h"
#include "tokenizer/tokenizer.h"

namespace tfm::data {

// A document is cut in three, all cuts equally likely, and becomes PRE prefix SUF suffix MID middle
// (PSM) or PRE SUF suffix MID prefix middle (SPM). Its last three ids give way to the three special
// ones; the ids that begin and end a document stay where they are.
class FillInMiddle {
 public:
  struct Options {
    double rate = 0, spm_rate = 0;  // of documents that are rearranged, and of these by SPM
    std::int32_t prefix = 0, middle = 0, suffix = 0;
    std::optional<std::int32_t> document_begin, document_end;
    std::uint64_t seed = 0;
  };
  explicit FillInMiddle(const Options& options) : options_(options) {}

  // Rearranges the documents of a sample, which also begin at `starts`: a function of (seed, batch,
  // sequence) alone.
  void apply(std::span<std::int32_t> sample, std::span<const std::int64_t> starts,
             Draws& draws) const;
  Draws draws(std::int64_t batch, std::int64_t sequence) const {
    return {options_.seed, "fim", batch, sequence};
  }

 private:
  void rearrange(std::span<std::int32_t> document, Draws& draws) const;

  Options options_;
};

// What section `fim` asks for, if anything; ids that it does not give are the tokenizer's.
// Error(usage) if that has none, or the vocabulary has not.
std::optional<FillInMiddle> fill_in_middle(const config::Config& config,
                                           const config::SourceConfig& source,
                                           const tokenizer::Tokenizer& tokenizer,
                                           std::optional<std::int32_t> document_end);

}  // namespace tfm::data
