#include "models/encoder_decoder.h"

namespace tfm::models {

EncoderDecoder::EncoderDecoder(const config::Config& config, const comm::Mesh& mesh)
    : Transformer(config, mesh) {
  const config::ModelConfig& m = config_.model;
  const bool shared = m.tie_embeddings == config::TieEmbeddings::all ||
                      m.tie_embeddings == config::TieEmbeddings::inputs;
  source_.emplace(context_, shared ? "embedding.weight" : "encoder.embedding.weight", m.vocab_size,
                  m.d_model, context_.init_std, m.padding_idx);
  source_embeddings_.emplace(context_, m, "encoder.");
  encoder_.emplace(context_, stages_, m, "encoder.", 0, m.n_encoder_layers, false, false);
  const int first_of_decoder = stages_.rank_of_block(m.n_encoder_layers);
  parameters_.begin_stage(first_of_decoder);
  if (shared)
    source_->use_at(context_, first_of_decoder);
  else
    target_.emplace(context_, "decoder.embedding.weight", m.vocab_size, m.d_model,
                    context_.init_std, m.padding_idx);
  target_embeddings_.emplace(context_, m, "decoder.");
  decoder_.emplace(context_, stages_, m, "decoder.", m.n_encoder_layers, m.n_decoder_layers, true,
                   true);
  head_.emplace(context_, stages_, m, m.tied_head() ? &target_tokens() : nullptr);
  parameters_.finish();
}

EncoderOutput EncoderDecoder::read_source(nn::Recording& rec, Relay& relay, bool training) const {
  graph::Recorder& r = *rec.tape;
  const graph::Recorder::Named scope(r, "encoder");
  EncoderOutput encoder_output{.right_padded = rec.shape.right_padded,
                               .rows = rec.shape.source_rows()};
  const graph::Value ids = rec.input(Field::source_ids, relay.here());
  encoder_output.segments = rec.input(Field::source_mask);
  nn::AttentionContext visible{.right_padded = rec.shape.right_padded};
  visible.k_segments = encoder_output.segments;
  graph::Value x;
  if (relay.here())
    x = (*source_embeddings_)(rec, *source_, ids, {}, encoder_output.rows, training);
  encoder_output.hidden = (*encoder_)(r, relay, x, encoder_output.rows, visible, nullptr, training);
  relay.pass_to(decoder_->first_stage(), {{&encoder_output.hidden, encoder_output.rows}});
  if (relay.here()) encoder_output.states = nn::enter_tp_region(r, context_, encoder_output.hidden);
  return encoder_output;
}

graph::Value EncoderDecoder::hidden(nn::Recording& rec, Relay& relay, bool training) const {
  graph::Recorder& r = *rec.tape;
  const Rows rows = rec.shape.rows();
  EncoderOutput encoder_output = read_source(rec, relay, training);
  const graph::Recorder::Named scope(r, "decoder");
  const graph::Value ids = rec.input(Field::ids, relay.here());
  nn::AttentionContext visible{.right_padded = rec.shape.right_padded};
  if (rec.shape.mask != nn::Mask::none)
    visible.k_segments = rec.input(Field::mask, decoder_->here());
  graph::Value x;
  if (relay.here()) x = (*target_embeddings_)(rec, target_tokens(), ids, {}, rows, training);
  return (*decoder_)(r, relay, x, rows, visible, &encoder_output, training);
}

nn::Recording EncoderDecoder::record_encoder(const nn::BatchShape& shape, DType dtype) const {
  nn::Recording rec(shape, dtype);
  Relay relay(rec, stages_, context_, config_.model.d_model);
  const EncoderOutput encoder_output = read_source(rec, relay, false);
  const graph::Recorder::Named scope(*rec.tape, "decoder");
  rec.cross_kv = decoder_->keys_values(*rec.tape, encoder_output.states);
  return rec;
}

nn::Recording EncoderDecoder::record_decode(const nn::BatchShape& shape, DType dtype) const {
  nn::Recording rec(shape, dtype);
  graph::Recorder& r = *rec.tape;
  const graph::Recorder::Named scope(r, "decoder");
  const Rows rows = shape.rows();
  EncoderOutput encoder_output{.right_padded = shape.right_padded, .rows = shape.source_rows()};
  encoder_output.segments = rec.input(Field::source_mask);
  for (std::int64_t l = 0; l < config_.model.n_decoder_layers; ++l)
    rec.cross_kv.push_back(r.input("cross_kv." + std::to_string(l),
                                   {encoder_output.rows.tokens(), decoder_->kv_width()}, dtype));
  encoder_output.keys_values = rec.cross_kv;
  const graph::Value x =
      (*target_embeddings_)(rec, target_tokens(), rec.input(Field::ids), {}, rows, false);
  rec.logits = head_->logits(r, decoder_->step(rec, x, &encoder_output));
  return rec;
}

}  // namespace tfm::models
