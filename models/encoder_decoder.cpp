#include "models/encoder_decoder.h"

namespace tfm::models {

EncoderDecoder::EncoderDecoder(const config::Config& config, const comm::Mesh& mesh)
    : Transformer(config, mesh) {
  const config::ModelConfig& m = config_.model;
  const bool shared = m.tie_embeddings == config::TieEmbeddings::all ||
                      m.tie_embeddings == config::TieEmbeddings::inputs;
  source_.emplace(context_, shared ? "embedding.weight" : "encoder.embedding.weight",
                  m.source_vocabulary(), m.d_model, context_.init_std, m.padding_idx);
  source_embeddings_.emplace(context_, m, "encoder.");
  const auto stacks = m.stacks();
  encoder_.emplace(context_, stages_, m, "encoder.", 0, stacks[0], false, false);
  const int first_of_decoder = stages_.rank_of_block(m.n_encoder_layers);
  parameters_.begin_stage(first_of_decoder);
  if (shared)
    source_->use_at(context_, first_of_decoder);
  else
    target_.emplace(context_, "decoder.embedding.weight", m.vocab_size, m.d_model,
                    context_.init_std, m.padding_idx);
  target_embeddings_.emplace(context_, m, "decoder.");
  decoder_.emplace(context_, stages_, m, "decoder.", m.n_encoder_layers, stacks[1], true, true);
  add_heads(target_tokens());
}

EncoderOutput EncoderDecoder::read_source(nn::Recording& rec, Relay& relay, bool training) const {
  graph::Recorder& r = *rec.tape;
  const graph::Recorder::Named scope(r, "encoder");
  const Rows rows = rec.shape.source_rows();
  const graph::Value ids = rec.input(Field::source_ids, relay.here()),
                     segments = rec.input(Field::source_mask);
  graph::Value x;
  if (relay.here()) x = (*source_embeddings_)(rec, *source_, {ids}, rows, training);
  const bool right_padded = rec.shape.right_padded;
  EncoderOutput out{(*encoder_)(r, relay, x,
                                {.rows = rows,
                                 .training = training,
                                 .k_segments = segments,
                                 .right_padded = right_padded,
                                 .router_terms = training ? &rec.router_terms : nullptr}),
                    {.segments = segments, .right_padded = right_padded, .rows = rows}};
  relay.pass_to(decoder_->first_stage(), {{&out.hidden, rows}});
  if (relay.here()) out.source.states = nn::enter_tp_region(r, context_, out.hidden);
  return out;
}

graph::Value EncoderDecoder::hidden(nn::Recording& rec, Relay& relay, bool training) const {
  graph::Recorder& r = *rec.tape;
  const Rows rows = rec.shape.rows();
  EncoderOutput encoder_output = read_source(rec, relay, training);
  const graph::Recorder::Named scope(r, "decoder");
  const graph::Value ids = rec.input(Field::ids, relay.here());
  nn::LayerContext context{
      .rows = rows, .training = training, .right_padded = rec.shape.right_padded};
  if (training) context.router_terms = &rec.router_terms;
  if (rec.shape.mask != nn::Mask::none)
    context.k_segments = rec.input(Field::mask, decoder_->here());
  graph::Value x;
  if (relay.here()) x = (*target_embeddings_)(rec, target_tokens(), {ids}, rows, training);
  return (*decoder_)(r, relay, x, context, &encoder_output);
}

nn::Recording EncoderDecoder::record_encoder(const nn::BatchShape& shape, DType dtype) const {
  nn::Recording rec(shape, dtype);
  Relay relay(rec, stages_, context_, config_.model.d_model);
  const EncoderOutput encoder_output = read_source(rec, relay, false);
  const graph::Recorder::Named scope(*rec.tape, "decoder");
  decoder_->record_source(rec, encoder_output.source.states);
  return rec;
}

nn::Recording EncoderDecoder::record_decode(const nn::BatchShape& shape, DType dtype) const {
  nn::Recording rec(shape, dtype);
  graph::Recorder& r = *rec.tape;
  const graph::Recorder::Named scope(r, "decoder");
  const Rows rows = shape.rows();
  const nn::Source source{.segments = rec.input(Field::source_mask),
                          .right_padded = shape.right_padded,
                          .rows = shape.source_rows()};
  const graph::Value x =
      (*target_embeddings_)(rec, target_tokens(), {rec.input(Field::ids)}, rows, false);
  rec.logits = token_logits(rec, decoder_->decode(rec, x, &source));
  return rec;
}

}  // namespace tfm::models
