#include "models/encoder.h"

namespace tfm::models {

Encoder::Encoder(const config::Config& config, const comm::Mesh& mesh) : Transformer(config, mesh) {
  const config::ModelConfig& m = config_.model;
  tokens_.emplace(context_, "embedding.weight", m.vocab_size, m.d_model, context_.init_std,
                  m.padding_idx);
  embeddings_.emplace(context_, m, "");
  stack_.emplace(context_, stages_, m, "", 0, m.stacks()[0], false, false);
  add_heads(*tokens_);
}

graph::Value Encoder::hidden(nn::Recording& rec, Relay& relay, bool training) const {
  const Rows rows = rec.shape.rows();
  const Embeddings::Inputs in = embeddings_->inputs(rec, relay.here());
  nn::LayerContext context{
      .rows = rows, .training = training, .right_padded = rec.shape.right_padded};
  if (training) context.router_terms = &rec.router_terms;
  context.k_segments = rec.input(Field::mask);
  if (rec.shape.mask == nn::Mask::documents) context.q_segments = context.k_segments;
  graph::Value x;
  if (relay.here()) x = (*embeddings_)(rec, *tokens_, in, rows, training);
  return (*stack_)(*rec.tape, relay, x, context);
}

}  // namespace tfm::models
