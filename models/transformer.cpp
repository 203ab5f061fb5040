#include "models/transformer.h"

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
  const graph::Value labels = rec.input(Field::labels, relay.here());
  head_->record_loss(rec, x, labels, config_.loss, training);
  return rec;
}

nn::Recording Transformer::record_logits(const nn::BatchShape& shape, DType dtype) const {
  nn::Recording rec(shape, dtype);
  Relay relay(rec, stages_, context_, config_.model.d_model);
  const graph::Value x = hidden(rec, relay, false);
  if (relay.here()) rec.logits = head_->logits(*rec.tape, x);
  return rec;
}

}  // namespace tfm::models
