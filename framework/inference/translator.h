#pragma once
// Lines of text through an encoder-decoder.
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/pairs.h"
#include "inference/beam_search.h"
#include "inference/inference.h"

namespace tfm::inference {

struct TranslatorOptions {
  bool special_tokens = false;  // TextFormat's, of the sources
  std::int64_t beams = 1;
  double length_penalty = 1;    // as BeamOptions
  std::int64_t max_tokens = 0;  // of a translation, the end included; 0: twice its source's and 50.
                                // At most model.max_seq_len.
  std::vector<std::int32_t> end_ids = {}, banned_ids = {};  // TextFormat's
};
TranslatorOptions translation_of(const config::Config& config);  // of the validation data

// Memory for translations of any lines.
std::int64_t translation_bytes(const nn::Model& model, const config::ModelConfig& config,
                               const TranslatorOptions& options, DType dtype);

// Runs the searches to their end; search i has sequences [i * beams, (i + 1) * beams) of a
// generation that was just started.
void search(Generation& generation, std::span<BeamSearch> searches);

// The same translations on any number of data ranks; at another tensor parallelism logits differ by
// rounding, so two hypotheses that are equally likely to the last digits may be ordered
// differently. All ranks of the mesh make and call one alike.
class Translator {
 public:
  // Model, weights (as Generation's) and tokenizer must outlive this. `memory`: at least
  // translation_bytes() of the device's; none: what the lines at hand need is allocated. Throws
  // Error(usage) where the tokenizer has no id that ends a sentence, Error(input) where the model
  // does not know it.
  Translator(const nn::Model& model, const config::ModelConfig& config,
             const comm::RankContext& rank_context, const Weights& weights,
             const tokenizer::Tokenizer& tokenizer, const TranslatorOptions& options,
             std::span<std::byte> memory = {});

  // One translation a line, in order, on every rank; an empty line stays one. Line breaks within a
  // translation become spaces. Throws Error(input) for an id the model does not know. Lines are
  // sorted by length into batches, which the data ranks share out. After each batch of all of them
  // go_on() says, the same on all ranks, whether there is to be another one; if not, there are
  // none.
  std::vector<std::string> translate(
      const std::vector<std::string>& lines,
      const std::function<bool()>& go_on = [] { return true; });
  std::int64_t cut() const { return cut_; }  // sources so far that were truncated

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
