#include "models/decoder.h"

namespace tfm {

Decoder::Decoder(const Config& config, const Mesh& mesh)
    : config_(config), parameters_(mesh.layout, mesh.tensor_rank),
      context_{parameters_, mesh.layout, mesh.tensor_rank, config.parallel.sequence, config.model.init_std} {
  const ModelConfig& m = config_.model;
  tokens_.emplace(context_, "embedding.weight", m.vocab_size, m.d_model, context_.init_std, m.padding_idx);
  embeddings_.emplace(context_, m, "");
  stack_.emplace(context_, m, "", m.n_layers, true, false);
  head_.emplace(context_, m, m.tied_head() ? &*tokens_ : nullptr);
  parameters_.finish();
}

Value Decoder::hidden(Recording& rec, bool training) const {
  const nn::Rows rows = rec.shape.rows();
  const Value ids = rec.input("ids", rows.tokens());
  nn::Visibility visible;
  if (rec.shape.mask != Mask::none) visible.k_segments = rec.input("mask", rows.tokens());
  if (rec.shape.mask == Mask::documents) visible.q_segments = visible.k_segments;
  const Value x = (*embeddings_)(rec, *tokens_, ids, {}, rows, training);
  return (*stack_)(*rec.tape, x, rows, visible, nullptr, training);
}

Recording Decoder::record_loss(const BatchShape& shape, DType real, bool training) const {
  Recording rec(shape, real);
  const Value x = hidden(rec, training);
  head_->record_loss(rec, x, rec.input("labels", shape.rows().tokens()), config_.loss, training);
  return rec;
}

Recording Decoder::record_logits(const BatchShape& shape, DType real) const {
  Recording rec(shape, real);
  const Value x = hidden(rec, false);
  rec.logits = head_->logits(*rec.tape, x);
  return rec;
}

Recording Decoder::record_step(const BatchShape& shape, DType real) const {
  Recording rec(shape, real);
  const nn::Rows rows = shape.rows();
  const Value x = (*embeddings_)(rec, *tokens_, rec.input("ids", rows.tokens()), {}, rows, false);
  rec.logits = head_->logits(*rec.tape, stack_->step(rec, x, nullptr));
  return rec;
}

}  // namespace tfm
