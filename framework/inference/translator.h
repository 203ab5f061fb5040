#pragma once
// Translates lines of text with an encoder-decoder.
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/pairs.h"
#include "inference/beam_search.h"
#include "inference/inference.h"
#include "inference/text_format.h"

namespace tfm::inference {

struct TranslatorOptions {
  TextFormat format = {};
  std::int64_t beams = 1;
  double length_penalty = 1;  // as in BeamOptions
  // Tokens of a translation, with its end; 0: twice its source's and 50. At most model.max_seq_len,
  // unless positions are relative and it is set.
  std::int64_t max_tokens = 0;
};
// The options for translating the validation data.
TranslatorOptions translation_of(const config::Config& config);

// Bytes of memory for translating any lines.
std::int64_t translation_bytes(const nn::Model& model, const config::ModelConfig& config,
                               const TranslatorOptions& options, DType dtype);

// Runs the searches to their end. Search i has sequences [i * beams, (i + 1) * beams) of a
// generation that was just started.
void search(Generation& generation, std::span<BeamSearch> searches);

// Collective: all ranks of the mesh make and call one alike. Translations are the same on any
// number of data ranks. With another tensor parallelism logits differ by rounding, so hypotheses
// that are equally likely but for the last digits may change places.
class Translator {
 public:
  // Model, weights (as Generation's), configuration and tokenizer must outlive this. `memory`: at
  // least translation_bytes() of device memory; empty: allocates what the lines at hand need.
  // Error(usage) if the tokenizer has no id that ends a sentence, Error(input) if the model does
  // not know it.
  Translator(const nn::Model& model, const config::ModelConfig& config,
             const comm::RankContext& rank_context, const Weights& weights,
             const tokenizer::Tokenizer& tokenizer, const TranslatorOptions& options,
             std::span<std::byte> memory = {});

  // Returns one translation per line, in order, on every rank; empty lines stay empty. Line breaks
  // within a translation become spaces. Error(input) for an id that the model does not know. Lines
  // are sorted by length into batches, which the data ranks share. go_on(), called after every data
  // rank has done a batch and equal on all ranks, says whether to continue; if not, nothing is
  // returned.
  std::vector<std::string> translate(
      const std::vector<std::string>& lines,
      const std::function<bool()>& go_on = [] { return true; });
  std::int64_t cut() const { return cut_; }  // source lines truncated so far

 private:
  struct Source {
    std::size_t line = 0;
    std::vector<std::int32_t> ids;  // with the end
  };
  using Targets = std::vector<std::vector<std::int32_t>>;  // by line
  std::vector<Source> encode(const std::vector<std::string>& lines);
  void translate(std::span<const Source> batch, Targets& targets);
  Generation& generation(const nn::BatchShape& shape);
  void share(Targets& targets) const;
  std::string text(std::vector<std::int32_t> ids) const;

  const nn::Model& model_;
  const config::ModelConfig& config_;
  comm::RankContext rank_context_;
  Weights weights_;
  const tokenizer::Tokenizer& tokenizer_;
  TranslatorOptions options_;
  data::SentenceIds special_;
  std::span<std::byte> memory_;
  std::int64_t cut_ = 0;
  std::optional<Generation> generation_;
};

}  // namespace tfm::inference
