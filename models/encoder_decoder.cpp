#include "models/encoder_decoder.h"

namespace tfm::models {

EncoderDecoder::EncoderDecoder(const config::Config& config, const comm::Mesh& mesh)
    : config_(config),
      parameters_(parameter_set(config, mesh)),
      context_{parameters_, mesh.layout.size(nn::kModelAxes), mesh.place(nn::kModelAxes),
               config.parallel.sequence, config.model.init_std} {
  const config::ModelConfig& m = config_.model;
  const bool shared = m.tie_embeddings == config::TieEmbeddings::all ||
                      m.tie_embeddings == config::TieEmbeddings::inputs;
  source_.emplace(context_, shared ? "embedding.weight" : "encoder.embedding.weight", m.vocab_size,
                  m.d_model, context_.init_std, m.padding_idx);
  source_embeddings_.emplace(context_, m, "encoder.");
  encoder_.emplace(context_, m, "encoder.", m.n_encoder_layers, false, false);
  if (!shared)
    target_.emplace(context_, "decoder.embedding.weight", m.vocab_size, m.d_model,
                    context_.init_std, m.padding_idx);
  target_embeddings_.emplace(context_, m, "decoder.");
  decoder_.emplace(context_, m, "decoder.", m.n_decoder_layers, true, true);
  head_.emplace(context_, m, m.tied_head() ? &target_tokens() : nullptr);
  parameters_.finish();
}

EncoderOutput EncoderDecoder::read_source(nn::Recording& rec, bool training) const {
  graph::Recorder& r = *rec.tape;
  const graph::Recorder::Named scope(r, "encoder");
  EncoderOutput encoder_output{.rows = rec.shape.source_rows()};
  const graph::Value ids = rec.input(Field::source_ids);
  encoder_output.segments = rec.input(Field::source_mask);
  nn::AttentionContext visible;
  visible.k_segments = encoder_output.segments;
  const graph::Value x =
      (*source_embeddings_)(rec, *source_, ids, {}, encoder_output.rows, training);
  encoder_output.states = nn::enter_tp_region(
      r, context_, (*encoder_)(r, x, encoder_output.rows, visible, nullptr, training));
  return encoder_output;
}

graph::Value EncoderDecoder::hidden(nn::Recording& rec, bool training) const {
  graph::Recorder& r = *rec.tape;
  const nn::Rows rows = rec.shape.rows();
  const EncoderOutput encoder_output = read_source(rec, training);
  const graph::Recorder::Named scope(r, "decoder");
  const graph::Value ids = rec.input(Field::ids);
  nn::AttentionContext visible;
  if (rec.shape.mask != nn::Mask::none) visible.k_segments = rec.input(Field::mask);
  const graph::Value x = (*target_embeddings_)(rec, target_tokens(), ids, {}, rows, training);
  return (*decoder_)(r, x, rows, visible, &encoder_output, training);
}

nn::Recording EncoderDecoder::record_loss(const nn::BatchShape& shape, DType dtype,
                                          bool training) const {
  nn::Recording rec(shape, dtype);
  const graph::Value x = hidden(rec, training);
  head_->record_loss(rec, x, rec.input(Field::labels), config_.loss, training);
  return rec;
}

nn::Recording EncoderDecoder::record_logits(const nn::BatchShape& shape, DType dtype) const {
  nn::Recording rec(shape, dtype);
  const graph::Value x = hidden(rec, false);
  rec.logits = head_->logits(*rec.tape, x);
  return rec;
}

nn::Recording EncoderDecoder::record_encoder(const nn::BatchShape& shape, DType dtype) const {
  nn::Recording rec(shape, dtype);
  const EncoderOutput encoder_output = read_source(rec, false);
  const graph::Recorder::Named scope(*rec.tape, "decoder");
  rec.cross_kv = decoder_->keys_values(*rec.tape, encoder_output.states);
  return rec;
}

nn::Recording EncoderDecoder::record_decode(const nn::BatchShape& shape, DType dtype) const {
  nn::Recording rec(shape, dtype);
  graph::Recorder& r = *rec.tape;
  const graph::Recorder::Named scope(r, "decoder");
  const nn::Rows rows = shape.rows();
  EncoderOutput encoder_output{.rows = shape.source_rows()};
  encoder_output.segments = rec.input(Field::source_mask);
  for (std::int64_t l = 0; l < config_.model.n_decoder_layers; ++l)
    rec.cross_kv.push_back(r.input("memory." + std::to_string(l),
                                   {encoder_output.rows.tokens(), decoder_->kv_width()}, dtype));
  encoder_output.keys_values = rec.cross_kv;
  const graph::Value x =
      (*target_embeddings_)(rec, target_tokens(), rec.input(Field::ids), {}, rows, false);
  rec.logits = head_->logits(r, decoder_->step(rec, x, &encoder_output));
  return rec;
}

}  // namespace tfm::models
