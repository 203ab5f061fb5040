#include "models/encoder.h"

namespace tfm::models {

Encoder::Encoder(const config::Config& config, const comm::Mesh& mesh) : Transformer(config, mesh) {
  const config::ModelConfig& m = config_.model;
  tokens_.emplace(context_, "embedding.weight", m.vocab_size, m.d_model, context_.init_std,
                  m.padding_idx);
  embeddings_.emplace(context_, m, "");
  stack_.emplace(context_, stages_, m, "", 0, m.stacks()[0], false, false);
  head_.emplace(context_, stages_, m, m.tied_head() ? &*tokens_ : nullptr);
  if (m.next_sentence) {
    // Inside the tensor-parallel region: each tensor rank has a part of the classes, hence a term
    // of the gradient of all before them.
    pooler_.emplace(
        context_, std::vector<nn::PartSpec>{{"pooler", m.d_model}}, m.d_model,
        nn::Linear::Options{.std = context_.init_std, .partial = true, .hidden = false});
    classes_.emplace(context_, "next_sentence.weight", 2, m.d_model, context_.init_std);
    classes_bias_ =
        parameters_.add({.parts = {{"next_sentence.bias", 2}},
                         .placement = nn::placed(nn::Placement::shard_rows, nn::kModelAxes)});
  }
  parameters_.finish();
}

graph::Value Encoder::hidden(nn::Recording& rec, Relay& relay, bool training) const {
  const Rows rows = rec.shape.rows();
  const graph::Value ids = rec.input(Field::ids, relay.here());
  const graph::Value types = config_.model.type_vocab_size > 0
                                 ? rec.input(Field::token_types, relay.here())
                                 : graph::Value{};
  nn::MixerContext context{
      .rows = rows, .training = training, .right_padded = rec.shape.right_padded};
  context.k_segments = rec.input(Field::mask);
  if (rec.shape.mask == nn::Mask::documents) context.q_segments = context.k_segments;
  graph::Value x;
  if (relay.here()) x = (*embeddings_)(rec, *tokens_, ids, types, rows, training);
  return (*stack_)(*rec.tape, relay, x, context);
}

void Encoder::record_sentence_loss(nn::Recording& rec, graph::Value x, graph::Value labels,
                                   bool training) const {
  if (!x) return rec.loss_elsewhere(Field::sentence_labels);
  graph::Recorder& r = *rec.tape;
  const graph::Recorder::Named scope(r, "next_sentence");
  const graph::Value first =
      ops::first_rows(r, nn::enter_tp_region(r, context_, x), rec.shape.rows());
  const graph::Value pooled =
      ops::activation(r, (*pooler_)(r, first), kernels::Activation::tanh, false);
  record_cross_entropy(rec, pooled, classes_->weight(r), parameters_.record(r, classes_bias_),
                       labels, Field::sentence_labels, training,
                       {.vocab_size = 2,
                        .vocab_begin = classes_->begin(),
                        .vocab_end = classes_->end(),
                        .shards = context_.shards});
}

nn::Recording Encoder::record_loss(const nn::BatchShape& shape, DType dtype, bool training) const {
  nn::Recording rec(shape, dtype);
  Relay relay(rec, stages_, context_, config_.model.d_model);
  const graph::Value x = hidden(rec, relay, training);
  const graph::Value labels = rec.input(Field::labels, relay.here()),
                     sentence_labels =
                         pooler_ ? rec.input(Field::sentence_labels, relay.here()) : graph::Value{};
  head_->record_loss(rec, x, labels, config_.loss, training);
  if (pooler_) record_sentence_loss(rec, x, sentence_labels, training);
  return rec;
}

}  // namespace tfm::models
