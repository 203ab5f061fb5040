#pragma once
// Continues a text token by token with a decoder.
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "inference/inference.h"
#include "inference/sampler.h"

namespace tfm::inference {

// Keeps keys and values of the tokens read so far, until the text outgrows the context.
class TextGenerator {
 public:
  // `context`: the most tokens that the model reads. `longest`: tokens of the text at its end.
  // `prompt`: those of the first call, if they see each other (attention.prefix); else 0.
  TextGenerator(const nn::Model& model, const comm::RankContext& rank_context,
                const Weights& weights, std::int64_t vocab_size, std::int64_t context,
                std::int64_t longest, std::int64_t prompt = 0);

  // Logits of the token after `ids`, which must begin with those of the call before. Of a text
  // longer than the context, the last part is read.
  std::vector<double> logits(std::span<std::int32_t> ids);
  // Appends `max_tokens` tokens to `ids`, or fewer if one of `ends` is drawn, which is then the
  // last. Calls `on_token` with each token except the end.
  void generate(
      std::vector<std::int32_t>& ids, std::int64_t max_tokens, Sampler& sampler,
      std::span<const std::int32_t> ends,
      const std::function<void(std::int32_t)>& on_token = [](std::int32_t) {});

 private:
  std::vector<double> logits_of_window(std::span<std::int32_t> ids);  // of the last ones

  const nn::Model& model_;
  comm::RankContext rank_context_;
  Weights weights_;
  std::int64_t vocab_size_, context_, prompt_;
  Generation generation_;
  std::optional<Inference> inference_;  // for a text that has outgrown the context
};

}  // namespace tfm::inference
