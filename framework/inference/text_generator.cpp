#include "inference/text_generator.h"

#include <algorithm>

namespace tfm::inference {
namespace {

constexpr std::int64_t kPromptTokens = 32;  // prompt tokens per forward pass

}  // namespace

TextGenerator::TextGenerator(const nn::Model& model, const comm::RankContext& rank_context,
                             const Weights& weights, std::int64_t vocab_size, std::int64_t context,
                             std::int64_t longest, std::int64_t prompt)
    : model_(model),
      rank_context_(rank_context),
      weights_(weights),
      vocab_size_(vocab_size),
      context_(std::max<std::int64_t>(context, 1)),
      prompt_(prompt),
      generation_(
          model, rank_context, weights,
          {.sequences = 1,
           .length = std::min(prompt > 0 ? prompt : kPromptTokens, std::min(longest, context_)),
           .capacity = std::min(longest, context_)},
          vocab_size) {}

std::vector<double> TextGenerator::logits(std::span<std::int32_t> ids) {
  if (std::ssize(ids) > context_) return logits_of_window(ids);
  const auto together = static_cast<std::size_t>(generation_.shape().length);
  for (auto rest = ids.subspan(static_cast<std::size_t>(generation_.position())); !rest.empty();) {
    const std::size_t tokens = rest.size() >= together ? together : 1;
    generation_.step(rest.first(tokens));
    rest = rest.subspan(tokens);
  }
  return {generation_.logits().begin(), generation_.logits().end()};
}

std::vector<double> TextGenerator::logits_of_window(std::span<std::int32_t> ids) {
  if (!inference_)
    inference_.emplace(model_, rank_context_, weights_,
                       nn::BatchShape{.sequences = 1, .length = context_}, vocab_size_);
  BatchFields fields{{Field::ids, ids.last(static_cast<std::size_t>(context_))}};
  auto prefix =
      static_cast<std::int32_t>(std::max<std::int64_t>(0, prompt_ - (std::ssize(ids) - context_)));
  if (prompt_ > 0) fields[Field::prefix] = {&prefix, 1};
  inference_->run(fields);
  return inference_->row(context_ - 1);
}

void TextGenerator::generate(std::vector<std::int32_t>& ids, std::int64_t max_tokens,
                             Sampler& sampler, std::span<const std::int32_t> ends,
                             const std::function<void(std::int32_t)>& on_token) {
  for (std::int64_t n = 0; n < max_tokens; ++n) {
    ids.push_back(sampler.next(logits(ids)));
    if (std::ranges::find(ends, ids.back()) != ends.end()) return;
    on_token(ids.back());
  }
}

}  // namespace tfm::inference
