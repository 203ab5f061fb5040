#include "models/decoder.h"

namespace tfm::models {

Decoder::Decoder(const config::Config& config, const comm::Mesh& mesh)
    : config_(config),
      parameters_(parameter_set(config, mesh)),
      context_{parameters_, mesh.layout.size(nn::kModelAxes), mesh.place(nn::kModelAxes),
               config.parallel.sequence, config.model.init_std} {
  const config::ModelConfig& m = config_.model;
  tokens_.emplace(context_, "embedding.weight", m.vocab_size, m.d_model, context_.init_std,
                  m.padding_idx);
  embeddings_.emplace(context_, m, "");
  stack_.emplace(context_, m, "", m.n_layers, true, false);
  head_.emplace(context_, m, m.tied_head() ? &*tokens_ : nullptr);
  parameters_.finish();
}

graph::Value Decoder::hidden(nn::Recording& rec, bool training) const {
  const nn::Rows rows = rec.shape.rows();
  const graph::Value ids = rec.input(Field::ids);
  nn::AttentionContext visible;
  if (rec.shape.mask != nn::Mask::none) visible.k_segments = rec.input(Field::mask);
  if (rec.shape.mask == nn::Mask::documents) visible.q_segments = visible.k_segments;
  const graph::Value x = (*embeddings_)(rec, *tokens_, ids, {}, rows, training);
  return (*stack_)(*rec.tape, x, rows, visible, nullptr, training);
}

nn::Recording Decoder::record_loss(const nn::BatchShape& shape, DType dtype, bool training) const {
  nn::Recording rec(shape, dtype);
  const graph::Value x = hidden(rec, training);
  head_->record_loss(rec, x, rec.input(Field::labels), config_.loss, training);
  return rec;
}

nn::Recording Decoder::record_logits(const nn::BatchShape& shape, DType dtype) const {
  nn::Recording rec(shape, dtype);
  const graph::Value x = hidden(rec, false);
  rec.logits = head_->logits(*rec.tape, x);
  return rec;
}

nn::Recording Decoder::record_decode(const nn::BatchShape& shape, DType dtype) const {
  nn::Recording rec(shape, dtype);
  const nn::Rows rows = shape.rows();
  const graph::Value x = (*embeddings_)(rec, *tokens_, rec.input(Field::ids), {}, rows, false);
  rec.logits = head_->logits(*rec.tape, stack_->step(rec, x, nullptr));
  return rec;
}

}  // namespace tfm::models
