#include "models/decoder.h"

#include <cmath>

namespace tfm {
namespace {

kernels::Activation activation_of(const std::string& name) {
  if (name == "relu") return kernels::Activation::relu;
  if (name == "gelu") return kernels::Activation::gelu;
  if (name == "gelu_tanh" || name == "geglu") return kernels::Activation::gelu_tanh;
  return kernels::Activation::silu;  // silu, swiglu
}

}  // namespace

Decoder::Decoder(const Config& config, const Mesh& mesh)
    : config_(config), parameters_(mesh.layout, mesh.tensor_rank),
      context_{parameters_, mesh.layout, mesh.tensor_rank, config.parallel.sequence} {
  const ModelConfig& m = config_.model;
  embedding_ = parameters_.add({.parts = {{"embedding.weight", m.vocab_size}}, .cols = m.d_model, .split = Split::rows,
                                .init = {Init::Kind::normal, context_.init_std}, .decay = true});
  if (m.position == "learned")
    position_ = parameters_.add({.parts = {{"position.weight", m.max_seq_len}}, .cols = m.d_model,
                                 .init = {Init::Kind::normal, context_.init_std}, .partial_gradient = context_.split_rows()});
  for (int l = 0; l < m.n_layers; ++l) blocks_.push_back(make_block(l));
  if (m.norm_position == "pre")
    final_norm_.emplace_back(context_, "final_norm", m.d_model, nn::Norm::Options{m.norm == "rmsnorm", m.bias, m.norm_eps});
  if (!m.tie_embeddings) {
    head_ = parameters_.add({.parts = {{"head.weight", m.vocab_size}}, .cols = m.d_model, .split = Split::rows,
                             .init = {Init::Kind::normal, context_.init_std}, .decay = true});
    if (m.bias) head_bias_ = parameters_.add({.parts = {{"head.bias", m.vocab_size}}, .split = Split::rows});
  }
  parameters_.finish();
}

Decoder::Block Decoder::make_block(int layer) {
  const ModelConfig& m = config_.model;
  const std::string name = "layers." + std::to_string(layer);
  const nn::Norm::Options norm{m.norm == "rmsnorm", m.bias, m.norm_eps};
  // GPT-2's rule: projections into the residual stream start smaller, by sqrt of their number.
  const double output_std = context_.init_std / std::sqrt(2.0 * static_cast<double>(m.n_layers));
  nn::SelfAttention::Options a{.width = m.d_model, .heads = m.n_heads, .kv_heads = m.n_kv_heads, .head_size = m.d_head, .bias = m.bias,
                               .scale = 1 / std::sqrt(static_cast<double>(m.d_head)), .dropout = m.dropout.attention,
                               .output_std = output_std, .alibi = m.position == "alibi"};
  if (m.position == "rope") {
    const RopeScaling& s = m.rope.scaling;
    a.rotary_frequency = nn::rotary_frequencies(m.d_head, m.rope.theta,
                                                {s.factor, s.low_freq_factor, s.high_freq_factor, s.original_max_seq_len});
  }
  const nn::FeedForward::Options f{.width = m.d_model, .hidden = m.d_ff, .activation = activation_of(m.activation), .gated = m.gated(),
                                   .bias = m.bias, .dropout = m.dropout.ffn, .output_std = output_std};
  // Registered in the order of use, so that gradients become final from the end of the flat buffer to its start.
  nn::Norm attention_norm(context_, name + ".attention_norm", m.d_model, norm);
  nn::SelfAttention attention(context_, name + ".attention", a);
  nn::Norm ffn_norm(context_, name + ".ffn_norm", m.d_model, norm);
  nn::FeedForward ffn(context_, name + ".ffn", f);
  return {attention_norm, ffn_norm, attention, ffn};
}

std::int64_t Decoder::vocab_begin() const {
  const std::int64_t share = ceil_div(config_.model.vocab_size, context_.layout.tensor);
  return std::min(config_.model.vocab_size, share * context_.tensor_rank);
}
std::int64_t Decoder::vocab_end() const {
  const std::int64_t share = ceil_div(config_.model.vocab_size, context_.layout.tensor);
  return std::min(config_.model.vocab_size, share * (context_.tensor_rank + 1));
}

Value Decoder::embed(Recording& rec, const nn::Rows& rows, bool training) const {
  const ModelConfig& m = config_.model;
  Recorder& r = *rec.tape;
  const Recorder::Named scope(r, "embedding");
  rec.ids = r.input("ids", {rows.tokens()}, DType::i32);
  const double scale = m.scale_embeddings ? std::sqrt(static_cast<double>(m.d_model)) : 1.0;
  Value x = ops::embedding(r, rec.ids, parameters_.record(r, embedding_), {vocab_begin(), vocab_end(), scale});
  x = nn::leave_split(r, context_, x);
  const ops::Place place = nn::outside(context_, rows, m.d_model);
  if (m.position == "learned") x = ops::add_position(r, x, parameters_.record(r, position_), place);
  if (m.position == "sinusoidal") {
    const Value table = r.constant("sinusoidal", {rows.sequence_length, m.d_model});
    rec.constants.emplace_back(table, [](Tensor t) {
      with_float(t.dtype, [&]<class T>() { nn::sinusoidal_table(t.shape[0], t.shape[1], t.ptr<T>()); });
    });
    x = ops::add_position(r, x, table, place);
  }
  if (training && m.dropout.embedding > 0) x = ops::dropout_add(r, x, {}, m.dropout.embedding, place);
  return x;
}

Value Decoder::block(Recorder& r, const Block& b, Value x, const nn::Rows& rows, bool training) const {
  const Recorder::Checkpoint scope(r);
  const bool pre = config_.model.norm_position == "pre";
  const double p = training ? config_.model.dropout.residual : 0;
  const ops::Place place = nn::outside(context_, rows, config_.model.d_model);
  const auto sublayer = [&](const char* name, const nn::Norm& norm, const auto& layer) {
    const Value y = layer(r, pre ? norm(r, x) : x, rows, training);
    const Recorder::Named named(r, name);
    x = ops::dropout_add(r, y, x, p, place);
    if (!pre) x = norm(r, x);
  };
  sublayer("attention", b.attention_norm, b.attention);
  sublayer("ffn", b.ffn_norm, b.ffn);
  return x;
}

Value Decoder::hidden(Recording& rec, const nn::Rows& rows, DType real, bool training) const {
  rec.tape = std::make_shared<Recorder>(real);
  Recorder& r = *rec.tape;
  Value x = embed(rec, rows, training);
  for (std::size_t l = 0; l < blocks_.size(); ++l) {
    const Recorder::Named scope(r, "layers." + std::to_string(l));
    x = block(r, blocks_[l], x, rows, training);
  }
  if (!final_norm_.empty()) x = final_norm_[0](r, x);
  const Recorder::Named scope(r, "head");
  return nn::enter_split(r, context_, x);
}

Recording Decoder::record_loss(const nn::Rows& rows, DType real, bool training) const {
  Recording rec;
  const Value x = hidden(rec, rows, real, training);
  Recorder& r = *rec.tape;
  rec.labels = r.input("labels", {rows.tokens()}, DType::i32);
  const Recorder::Named scope(r, "head");
  rec.loss = ops::linear_cross_entropy(r, x, parameters_.record(r, head_ < 0 ? embedding_ : head_),
                                       head_bias_ < 0 ? Value{} : parameters_.record(r, head_bias_), rec.labels,
                                       {config_.model.vocab_size, vocab_begin(), vocab_end(), config_.loss.label_smoothing});
  return rec;
}

Recording Decoder::record_logits(const nn::Rows& rows, DType real) const {
  Recording rec;
  const Value x = hidden(rec, rows, real, false);
  Recorder& r = *rec.tape;
  const Recorder::Named scope(r, "head");
  rec.logits = ops::linear(r, x, parameters_.record(r, head_ < 0 ? embedding_ : head_),
                           head_bias_ < 0 ? Value{} : parameters_.record(r, head_bias_));
  return rec;
}

}  // namespace tfm
