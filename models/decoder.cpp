#include "models/decoder.h"

namespace tfm::models {

Decoder::Decoder(const config::Config& config, const comm::Mesh& mesh) : Transformer(config, mesh) {
  const config::ModelConfig& m = config_.model;
  tokens_.emplace(context_, "embedding.weight", m.vocab_size, m.d_model, context_.init_std,
                  m.padding_idx);
  embeddings_.emplace(context_, m, "");
  stack_.emplace(context_, stages_, m, "", 0, m.stacks()[0], true, false);
  add_heads(*tokens_);
}

graph::Value Decoder::hidden(nn::Recording& rec, Relay& relay, bool training) const {
  const Rows rows = rec.shape.rows();
  const Embeddings::Inputs in = embeddings_->inputs(rec, relay.here());
  nn::LayerContext context{
      .rows = rows, .training = training, .right_padded = rec.shape.right_padded};
  if (training) context.router_terms = &rec.router_terms;
  if (rec.shape.mask != nn::Mask::none) context.k_segments = rec.input(Field::mask);
  if (rec.shape.mask == nn::Mask::documents) context.q_segments = context.k_segments;
  if (config_.model.sees_prefixes()) context.prefixes = rec.input(Field::prefix);
  graph::Value x;
  if (relay.here()) x = (*embeddings_)(rec, *tokens_, in, rows, training);
  return (*stack_)(*rec.tape, relay, x, context);
}

nn::Recording Decoder::record_decode(const nn::BatchShape& shape, DType dtype) const {
  nn::Recording rec(shape, dtype);
  const Rows rows = shape.rows();
  const graph::Value x = (*embeddings_)(rec, *tokens_, {rec.input(Field::ids)}, rows, false);
  rec.logits = token_logits(rec, stack_->decode(rec, x));
  return rec;
}

}  // namespace tfm::models
