#include "models/parts.h"

#include <algorithm>
#include <cmath>

#include "nn/positions.h"

namespace tfm::models {
namespace {

kernels::Activation activation_of(config::Activation activation) {
  switch (activation) {
    case config::Activation::relu:
      return kernels::Activation::relu;
    case config::Activation::gelu:
      return kernels::Activation::gelu;
    case config::Activation::gelu_tanh:
    case config::Activation::geglu:
      return kernels::Activation::gelu_tanh;
    case config::Activation::silu:
    case config::Activation::swiglu:
      return kernels::Activation::silu;
  }
  internal_error("unhandled enum value");
}

double logit_scale(const config::ModelConfig& m) {
  return m.scale_logits ? 1 / std::sqrt(static_cast<double>(m.d_model)) : 1.0;
}
nn::Norm::Options norm_of(const config::ModelConfig& m) {
  return {m.norm == config::Norm::rmsnorm, m.bias, m.norm_eps};
}
std::vector<double> rotary_frequencies(const config::ModelConfig& m) {
  if (m.position != config::Position::rope) return {};
  const config::RopeScaling& s = m.rope.scaling;
  return nn::rotary_frequencies(
      m.d_head, m.rope.theta,
      {s.factor, s.low_freq_factor, s.high_freq_factor, s.original_max_seq_len});
}

}  // namespace

nn::ParameterSet parameter_set(const config::Config& c, const comm::Mesh& mesh) {
  const bool by_layers = c.parallel.zero > 1 || c.numerics == config::Numerics::deterministic;
  return {mesh.layout, mesh.rank(),
          by_layers ? std::max<std::int64_t>(1, c.parallel.bucket_bytes / 4) : 0};
}

Vocabulary::Vocabulary(nn::Context& c, const std::string& name, std::int64_t size,
                       std::int64_t width, double std, std::int64_t padding_idx)
    : parameters_(&c.parameters),
      index_(c.parameters.add({.parts = {{name, size}},
                               .cols = width,
                               .placement = nn::placed(nn::Placement::shard_rows, nn::kModelAxes),
                               .init = {nn::Init::Kind::normal, std},
                               .decay = true})),
      size_(size),
      padding_idx_(padding_idx) {
  const std::int64_t share = ceil_div(size, c.shards);
  begin_ = std::min(size, share * c.shard);
  end_ = std::min(size, share * (c.shard + 1));
}

graph::Value Vocabulary::partial(graph::Recorder& r, graph::Value ids, double scale) const {
  return ops::embedding(r, ids, weight(r), {begin_, end_, scale, padding_idx_});
}

Embeddings::Embeddings(nn::Context& c, const config::ModelConfig& m, const std::string& prefix)
    : context_(c), config_(m), prefix_(prefix) {
  c.parameters.next_layer();  // a tied token table is used again by the head
  if (m.position == config::Position::learned)
    position_ = c.parameters.add(
        {.parts = {{prefix + "position.weight", m.max_seq_len + m.position_offset}},
         .cols = m.d_model,
         .init = {nn::Init::Kind::normal, c.init_std},
         .partial = c.partial_where(c.split_rows())});
  if (m.type_vocab_size > 0)
    types_.emplace(c, prefix + "segment.weight", m.type_vocab_size, m.d_model, c.init_std);
  if (m.embedding_norm) norm_.emplace(c, prefix + "embedding_norm", m.d_model, norm_of(m));
}

graph::Value Embeddings::positions(nn::Recording& rec, graph::Value x,
                                   const ops::ActivationRegion& place) const {
  graph::Recorder& r = *rec.tape;
  if (position_ >= 0)
    return ops::add_position(r, x, context_.parameters.record(r, position_), place,
                             config_.position_offset);
  if (config_.position != config::Position::sinusoidal) return x;
  const std::int64_t rows = std::max(place.rows.sequence_length, rec.shape.capacity);
  const graph::Value table =
      r.constant(prefix_ + "sinusoidal", {rows, config_.d_model}, r.dtype(),
                 [halves = config_.sinusoid == config::Sinusoid::halves](Tensor t) {
                   with_float(t.dtype, [&]<class T>() {
                     nn::sinusoidal_table(t.shape[0], t.shape[1], halves, t.ptr<T>());
                   });
                 });
  return ops::add_position(r, x, table, place);
}

graph::Value Embeddings::operator()(nn::Recording& rec, const Vocabulary& tokens, graph::Value ids,
                                    graph::Value types, const Rows& rows, bool training) const {
  graph::Recorder& r = *rec.tape;
  const graph::Recorder::Named scope(r, "embedding");
  const ops::ActivationRegion place = nn::outside_tp_region(context_, rows, config_.d_model);
  graph::Value x = tokens.partial(
      r, ids, config_.scale_embeddings ? std::sqrt(static_cast<double>(config_.d_model)) : 1.0);
  if (types)
    x = ops::dropout_add(r, types_->partial(r, types, 1.0), x, 0,
                         nn::inside_tp_region(context_, rows, config_.d_model));
  x = positions(rec, nn::leave_tp_region(r, context_, x), place);
  if (norm_) x = (*norm_)(r, x);
  const double p = training ? config_.dropout.embedding : 0;
  return p > 0 ? ops::dropout_add(r, x, {}, p, place) : x;
}

Stack::Stack(nn::Context& c, const Stages& stages, const config::ModelConfig& m,
             const std::string& prefix, std::int64_t first, std::int64_t layers, bool causal,
             bool cross)
    : context_(c), stages_(stages), config_(m), prefix_(prefix), first_(first), causal_(causal) {
  c.parameters.begin_stage(stages.rank_of_block(first));
  c.parameters.next_layer();
  if (m.position == config::Position::relative) {
    relative_bias_ =
        c.parameters.add({.parts = {{prefix + "relative_bias.weight", m.n_heads}},
                          .cols = m.relative.buckets,
                          .placement = nn::placed(nn::Placement::shard_rows, nn::kModelAxes),
                          .init = {nn::Init::Kind::normal, c.init_std}});
    for (std::int64_t l = 0; l < layers; ++l)
      c.parameters.use_at(relative_bias_, stages.rank_of_block(first + l));
  }
  const auto frequencies = rotary_frequencies(m);
  for (std::int64_t l = 0; l < layers; ++l) {
    c.parameters.begin_stage(stages.rank_of_block(first + l));
    c.parameters.next_layer();
    blocks_.push_back(
        make_block(c, prefix + "layers." + std::to_string(l), frequencies, layers, causal, cross));
  }
  c.parameters.next_layer();
  if (m.norm_position == config::NormPosition::pre)
    final_norm_.emplace(c, prefix + "final_norm", m.d_model, norm_of(m));
}

Stack::Block Stack::make_block(nn::Context& c, const std::string& name,
                               const std::vector<double>& rotary_frequency, std::int64_t layers,
                               bool causal, bool cross) {
  const config::ModelConfig& m = config_;
  const std::int64_t sublayers = layers * (cross ? 3 : 2);
  // GPT-2's rule: projections into a residual stream without norms start smaller, by sqrt of their
  // number.
  const double output_std = m.norm_position == config::NormPosition::pre
                                ? c.init_std / std::sqrt(static_cast<double>(sublayers))
                                : c.init_std;
  nn::SelfAttention::Options a{
      .width = m.d_model,
      .heads = m.n_heads,
      .kv_heads = m.n_kv_heads,
      .head_size = m.d_head,
      .qkv_bias = m.has_qkv_bias(),
      .bias = m.bias,
      .causal = causal,
      .qk_norm = m.qk_norm ? std::optional(norm_of(m)) : std::nullopt,
      .scale = m.scale_attention ? 1 / std::sqrt(static_cast<double>(m.d_head)) : 1.0,
      .dropout = m.dropout.attention,
      .output_std = output_std,
      .rotary_frequency = rotary_frequency,
      .alibi = m.position == config::Position::alibi};
  const nn::FeedForward::Options f{.width = m.d_model,
                                   .hidden = m.d_ff,
                                   .activation = activation_of(m.activation),
                                   .gated = m.gated(),
                                   .bias = m.has_ffn_bias(),
                                   .dropout = m.dropout.ffn,
                                   .output_std = output_std};
  // Registered in the order of use, so that gradients become final from the end of the flat buffer
  // to its start.
  nn::Norm attention_norm(c, name + ".attention_norm", m.d_model, norm_of(m));
  nn::SelfAttention attention(c, name + ".attention", a);
  std::optional<nn::Norm> cross_norm;
  std::optional<nn::CrossAttention> cross_attention;
  if (cross) {
    cross_norm.emplace(c, name + ".cross_attention_norm", m.d_model, norm_of(m));
    cross_attention.emplace(c, name + ".cross_attention",
                            nn::CrossAttention::Options{.width = m.d_model,
                                                        .encoder_width = m.d_model,
                                                        .heads = m.n_heads,
                                                        .kv_heads = m.n_kv_heads,
                                                        .head_size = m.d_head,
                                                        .qkv_bias = a.qkv_bias,
                                                        .bias = m.bias,
                                                        .qk_norm = a.qk_norm,
                                                        .scale = a.scale,
                                                        .dropout = m.dropout.attention,
                                                        .output_std = output_std});
  }
  nn::Norm ffn_norm(c, name + ".ffn_norm", m.d_model, norm_of(m));
  return {attention_norm,  attention, cross_norm,
          cross_attention, ffn_norm,  nn::FeedForward(c, name + ".ffn", f)};
}

graph::Value Stack::block(graph::Recorder& r, std::size_t l, graph::Value x, const Rows& rows,
                          const nn::AttentionContext& visible, const EncoderOutput* encoder_output,
                          bool training) const {
  const graph::Recorder::Named name(r, "layers." + std::to_string(l));
  const graph::Recorder::Checkpoint scope(r);
  const Block& b = blocks_[l];
  const bool pre = config_.norm_position == config::NormPosition::pre;
  const double p = training ? config_.dropout.residual : 0;
  const ops::ActivationRegion place = nn::outside_tp_region(context_, rows, config_.d_model);
  const auto sublayer = [&](const char* name, const nn::Norm& norm, const auto& layer) {
    const graph::Value y = layer(pre ? norm(r, x) : x);
    const graph::Recorder::Named named(r, name);
    x = ops::dropout_add(r, y, x, p, place);
    if (!pre) x = norm(r, x);
  };
  sublayer("attention", b.attention_norm,
           [&](graph::Value h) { return b.attention(r, h, rows, training, visible); });
  if (b.cross)
    sublayer("cross_attention", *b.cross_norm, [&](graph::Value h) {
      const graph::Value kv = encoder_output->keys_values.empty()
                                  ? b.cross->keys_values(r, encoder_output->states)
                                  : encoder_output->keys_values[l];
      const std::int64_t sources = encoder_output->rows.sequences;
      const Rows queries{sources,  // each with positions, or beams
                         div_exact(rows.sequences * rows.sequence_length, sources), rows.share};
      return (*b.cross)(
          r, h, kv, queries, encoder_output->rows, training,
          {.k_segments = encoder_output->segments, .right_padded = encoder_output->right_padded});
    });
  sublayer("ffn", b.ffn_norm, [&](graph::Value h) { return b.ffn(r, h, rows, training); });
  return x;
}

nn::AttentionContext Stack::visible(graph::Recorder& r, nn::AttentionContext v,
                                    std::int64_t queries, std::int64_t keys) const {
  if (relative_bias_ < 0) return v;
  v.relative_bias = context_.parameters.record(r, relative_bias_);
  v.buckets = nn::relative_buckets(queries, keys, config_.relative.buckets,
                                   config_.relative.max_distance, !causal_);
  return v;
}

graph::Value Stack::operator()(graph::Recorder& r, Relay& relay, graph::Value x, const Rows& rows,
                               const nn::AttentionContext& attention, EncoderOutput* encoder_output,
                               bool training) const {
  std::vector<std::pair<graph::Value*, Rows>> passed{{&x, rows}};
  if (encoder_output) passed.emplace_back(&encoder_output->hidden, encoder_output->rows);
  std::optional<nn::AttentionContext> seen;  // by the blocks of this rank
  for (std::size_t l = 0; l < blocks_.size(); ++l) {
    const bool received = relay.pass_to(stages_.of(first_ + static_cast<std::int64_t>(l)), passed);
    if (!relay.here()) continue;
    if (received && encoder_output) encoder_output->states = {};
    if (!seen) seen = visible(r, attention, rows.sequence_length, rows.sequence_length);
    if (encoder_output && !encoder_output->states)
      encoder_output->states = nn::enter_tp_region(r, context_, encoder_output->hidden);
    x = block(r, l, x, rows, *seen, encoder_output, training);
  }
  if (!relay.here()) return x;
  if (final_norm_) x = (*final_norm_)(r, x);
  if (!training || config_.dropout.output == 0) return x;
  const graph::Recorder::Named name(r, "output");
  return ops::dropout_add(r, x, {}, config_.dropout.output,
                          nn::outside_tp_region(context_, rows, config_.d_model));
}

graph::Value Stack::step(nn::Recording& rec, graph::Value x,
                         const EncoderOutput* encoder_output) const {
  TFM_CHECK(causal_ && !context_.split_rows(),
            "new tokens must be on every rank of the tensor axis");
  graph::Recorder& r = *rec.tape;
  const std::int64_t capacity = rec.shape.capacity;
  nn::AttentionContext attention = visible(r, {}, capacity, rec.shape.length);
  for (std::size_t l = 0; l < blocks_.size(); ++l) {
    attention.cache = r.input("cache." + std::to_string(l),
                              {rec.shape.sequences * capacity, kv_width()}, r.dtype());
    rec.caches.push_back(attention.cache);
    x = block(r, l, x, rec.shape.rows(), attention, encoder_output, false);
  }
  return final_norm_ ? (*final_norm_)(r, x) : x;
}

std::vector<graph::Value> Stack::keys_values(graph::Recorder& r, graph::Value states) const {
  std::vector<graph::Value> all;
  for (std::size_t l = 0; l < blocks_.size(); ++l) {
    const graph::Recorder::Named name(r, "layers." + std::to_string(l));
    all.push_back(blocks_[l].cross->keys_values(r, states));
  }
  return all;
}

Head::Head(nn::Context& c, const Stages& stages, const config::ModelConfig& m,
           const Vocabulary* tied)
    : context_(c), config_(m), tied_(tied) {
  c.parameters.begin_stage(stages.last_rank());
  if (tied) tied->use_at(c, stages.last_rank());
  if (m.head_transform) {
    transform_.emplace(c, std::vector<nn::PartSpec>{{"head.transform", m.d_model}}, m.d_model,
                       nn::Linear::Options{.bias = m.bias, .std = c.init_std, .hidden = false});
    norm_.emplace(c, "head.transform_norm", m.d_model, norm_of(m));
  }
  if (!tied) own_.emplace(c, "head.weight", m.vocab_size, m.d_model, c.init_std);
  if (m.has_head_bias())
    bias_ = c.parameters.add({.parts = {{"head.bias", m.vocab_size}},
                              .placement = nn::placed(nn::Placement::shard_rows, nn::kModelAxes),
                              .trained = m.head_bias != config::HeadBias::frozen});
}

void record_cross_entropy(nn::Recording& rec, graph::Value x, graph::Value weight,
                          graph::Value bias, graph::Value labels, Field field, bool training,
                          ops::CrossEntropyOptions options) {
  TFM_CHECK(rec.losses.size() < kMostObjectives, "a model has too many losses");
  options.objective = static_cast<int>(rec.losses.size());
  options.accuracy = !training;
  const graph::Value loss = ops::linear_cross_entropy(*rec.tape, x, weight, bias, labels, options);
  rec.losses.push_back({loss, field, training ? graph::Value{} : graph::Value{loss.id + 1}});
}

graph::Value Head::ready(graph::Recorder& r, graph::Value x) const {
  if (transform_)
    x = (*norm_)(r,
                 ops::activation(r, (*transform_)(r, x), activation_of(config_.activation), false));
  return nn::enter_tp_region(r, context_, x);
}

void Head::record_loss(nn::Recording& rec, graph::Value x, graph::Value labels,
                       const config::LossConfig& loss, bool training, double labelled) const {
  if (!x) return rec.loss_elsewhere(Field::labels);
  graph::Recorder& r = *rec.tape;
  const graph::Recorder::Named scope(r, "head");
  const Vocabulary& v = vocabulary();
  const auto size = static_cast<double>(v.size());
  const double smoothing = loss.smoothing_denominator == config::SmoothingDenominator::others
                               ? loss.label_smoothing * size / std::max(size - 1, 1.0)
                               : loss.label_smoothing;
  record_cross_entropy(rec, ready(r, x), v.weight(r), bias(r), labels, Field::labels, training,
                       {.vocab_size = v.size(),
                        .vocab_begin = v.begin(),
                        .vocab_end = v.end(),
                        .shards = context_.shards,
                        .smoothing = training ? smoothing : 0,
                        .scale = logit_scale(config_),
                        .labelled = labelled});
}

graph::Value Head::logits(graph::Recorder& r, graph::Value x) const {
  const graph::Recorder::Named scope(r, "head");
  return ops::linear(r, ready(r, x), vocabulary().weight(r), bias(r), logit_scale(config_));
}

}  // namespace tfm::models
