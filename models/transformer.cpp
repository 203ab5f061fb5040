#include "models/transformer.h"

#include <algorithm>

namespace tfm::models {

Transformer::Transformer(const config::Config& config, const comm::Mesh& mesh)
    : config_(config),
      parameters_(parameter_set(config, mesh)),
      context_{parameters_,
               mesh.layout.size(nn::kModelAxes),
               mesh.place(nn::kModelAxes),
               config.parallel.sequence,
               config.model.init_std,
               config.parallel.context_exchange == config::ContextExchange::ring},
      stages_(config, mesh) {}

nn::Recording Transformer::record_loss(const nn::BatchShape& shape, DType dtype,
                                       bool training) const {
  nn::Recording rec(shape, dtype);
  Relay relay(rec, stages_, context_, config_.model.d_model);
  const graph::Value x = hidden(rec, relay, training);
  for (const auto& head : heads_) head->record_loss(rec, x, training);
  return rec;
}

nn::Recording Transformer::record_logits(const nn::BatchShape& shape, DType dtype,
                                         std::string_view head) const {
  nn::Recording rec(shape, dtype);
  Relay relay(rec, stages_, context_, config_.model.d_model);
  const graph::Value x = hidden(rec, relay, false);
  if (!relay.here()) return rec;
  if (head.empty()) {
    rec.logits = token_logits(rec, x);
    return rec;
  }
  const auto& all = config_.model.heads;
  const auto found = std::ranges::find(all, head, &config::HeadConfig::name);
  TFM_CHECK(found != all.end(), "no head '" + std::string(head) + "'");
  rec.logits = heads_[static_cast<std::size_t>(found - all.begin())]->logits(rec, x);
  return rec;
}

void Transformer::add_heads(const Vocabulary& tied) {
  const config::ModelConfig& m = config_.model;
  parameters_.begin_stage(stages_.last_rank());
  for (const config::HeadConfig& head : m.heads) {
    const bool is_lm = head.type == "lm";
    if (is_lm && m.tied_head()) tied.use_at(context_, stages_.last_rank());
    heads_.push_back(heads().at(head.type)(
        {context_, m, head, config_.loss, is_lm && m.tied_head() ? &tied : nullptr}));
    if (is_lm) lm_ = heads_.back().get();
  }
  parameters_.finish();
}

graph::Value Transformer::token_logits(nn::Recording& rec, graph::Value x) const {
  if (!lm_)
    throw Error(ExitCode::usage,
                "the model predicts no tokens: model.heads has no head of type lm");
  return lm_->logits(rec, x);
}

}  // namespace tfm::models
