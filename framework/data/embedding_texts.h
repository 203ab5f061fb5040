#pragma once
// Texts of which a head of type embed makes vectors, in memory. A sequence is a text between the
// tokens that TextFrame puts around a text alone.
//
// Sequences of a row follow each other in the batch: the query (source.text), its document
// (source.text_pair) and, where the source has one, a negative (source.negative). Labels
// (Field::positives) are ops::contrastive()'s. No batch has a row twice, and every one has as many
// documents: an epoch leaves out the rows behind its last whole batch, and the last batch of an
// evaluation is filled up with the first rows, whose queries have no label.
#include <span>
#include <string>
#include <vector>

#include "data/labelled.h"

namespace tfm::data {

class EmbeddingTexts final : public Dataset {
 public:
  // Error(input) as of each_labelled_row(), and for fewer rows than a batch has, whose documents
  // would be their own negatives.
  EmbeddingTexts(const config::Config& config, const config::SourceConfig& source,
                 const tokenizer::Tokenizer& tokenizer, bool endless);
  // Texts alone, in order, without labels; the last batch may be short.
  EmbeddingTexts(const config::Config& config, const tokenizer::Tokenizer& tokenizer,
                 std::span<const std::string> texts);
  GlobalBatch batch(std::int64_t index) const override;
  std::int64_t batches() const override {
    return endless_ ? texts() / global_batch_ : ceil_div(texts(), global_batch_);
  }
  void fill(std::int64_t index, std::int64_t first, std::int64_t count,
            const BatchFields& fields) const override;

  std::int64_t texts() const { return std::ssize(ends_); }
  std::int64_t tokens() const { return std::ssize(ids_); }
  std::int64_t cut() const { return cut_; }  // texts that were truncated

 private:
  EmbeddingTexts(const config::Config& config, const tokenizer::Tokenizer& tokenizer,
                 std::int64_t texts_of_row);
  void add(std::string_view text, const std::string& where, const tokenizer::Tokenizer& tokenizer);

  std::int64_t length_, vocab_size_, global_batch_, cut_ = 0;
  std::int64_t texts_;  // of a row
  std::int64_t group_;  // rows
  bool endless_ = false;
  std::uint64_t seed_;
  TextFrame frame_;
  std::vector<std::int32_t> ids_;
  std::vector<std::int64_t> ends_;  // of each text in ids_
  std::optional<Sampler> sampler_;  // of rows
};

// The texts of the rows of a source, and the document of each.
struct TextPairs {
  std::vector<std::string> queries, documents;
};
TextPairs text_pairs(const config::SourceConfig& source);

}  // namespace tfm::data
