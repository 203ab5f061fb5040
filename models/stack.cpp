#include "models/stack.h"

#include <algorithm>

#include "nn/positions.h"

namespace tfm::models {

Stack::Stack(nn::Context& c, const Stages& stages, const config::ModelConfig& m,
             const std::string& prefix, std::int64_t first,
             const std::vector<config::LayerConfig>& layers, bool causal, bool cross)
    : context_(c),
      stages_(stages),
      d_model_(m.d_model),
      output_dropout_(m.dropout.output),
      relative_(m.relative),
      first_(first),
      causal_(causal) {
  const auto rank_of = [&](std::size_t l) {
    return stages.rank_of_block(first + static_cast<std::int64_t>(l));
  };
  const auto begin_layer = [&](std::size_t l) {
    c.parameters.begin_stage(rank_of(l));
    c.parameters.next_layer();
  };
  begin_layer(0);
  for (std::size_t l = 0; l < layers.size(); ++l) {
    if (layers[l].position != config::Position::relative) continue;
    if (relative_bias_ < 0)
      relative_bias_ =
          c.parameters.add({.parts = {{prefix + "relative_bias.weight", layers[l].n_heads}},
                            .cols = m.relative.buckets,
                            .placement = nn::placed(nn::Placement::shard_rows, nn::kModelAxes),
                            .init = {nn::Init::Kind::normal, c.init_std}});
    c.parameters.use_at(relative_bias_, rank_of(l));
  }
  const StackInfo info{m.d_model, causal, cross, std::ssize(layers), m.router_loss.has_bias(),
                       m.longrope};
  for (std::size_t l = 0; l < layers.size(); ++l) {
    begin_layer(l);
    layers_.push_back(make_layer(c, prefix + "layers." + std::to_string(l), layers[l], info));
  }
  c.parameters.next_layer();
  if (m.norm_position != config::NormPosition::post)
    final_norm_.emplace(c, prefix + "final_norm", m.d_model, norm_of(m));
}

// Parameters are registered in the order of use, so that gradients become final from the end of the
// flat buffer to its start.
Stack::Layer Stack::make_layer(nn::Context& c, const std::string& name,
                               const config::LayerConfig& config, const StackInfo& info) const {
  const auto norm = [&](const std::string& of) {
    return nn::Norm(c, name + of, info.d_model, norm_of(config));
  };
  // A sublayer between its norms.
  const auto with_norms = [&](const std::string& of, const auto& make, auto& part,
                              bool normed = true) {
    Norms norms;
    if (normed) norms.norm = norm(of + "_norm");
    part = make(c, name + of, config, info);
    if (config.norm_position == config::NormPosition::both)
      norms.output = norm(of + "_output_norm");
    return norms;
  };
  std::unique_ptr<nn::Mixer> attention, cross;
  std::unique_ptr<nn::Ffn> ffn;
  const Norms attention_norms =
      with_norms(".attention", make_mixer, attention, config.attention_norm);
  std::optional<Norms> cross_norms;
  if (info.cross) cross_norms = with_norms(".cross_attention", make_cross_attention, cross);
  const Norms ffn_norms = with_norms(".ffn", make_ffn, ffn);
  return {config,           attention_norms, std::move(attention), cross_norms,
          std::move(cross), ffn_norms,       std::move(ffn)};
}

graph::Value Stack::record_layer(graph::Recorder& r, std::size_t l, graph::Value x,
                                 const nn::LayerContext& context, const RecordMixer& record) const {
  const graph::Recorder::Named name(r, "layers." + std::to_string(l), comm::Purpose::layers);
  const graph::Recorder::Checkpoint scope(r);
  const Layer& layer = layers_[l];
  using enum config::NormPosition;
  const config::NormPosition position = layer.config.norm_position;
  const double p = context.training ? layer.config.dropout.residual : 0;
  const ops::ActivationRegion place = nn::outside_tp_region(context_, context.rows, d_model_);
  const auto named = [&](const std::string& what, graph::Value v) {
    nn::name_outside(r, context_, what, v, context.rows);
    return v;
  };
  const auto sublayer = [&](const std::string& of, const Norms& norms, const auto& part) {
    const auto normed = [&](graph::Value v) { return named(of + "_norm", (*norms.norm)(r, v)); };
    graph::Value y = part(norms.norm && (position == pre || position == both) ? normed(x) : x);
    named(of + ".output", y);
    if (position == inner) y = normed(y);
    if (norms.output) y = named(of + "_output_norm", (*norms.output)(r, y));
    {
      const graph::Recorder::Named scope(r, of);
      x = ops::dropout_add(r, y, x, p, place);
    }
    if (position == post) x = normed(x);
  };
  sublayer("attention", layer.attention_norms,
           [&](graph::Value h) { return record(*layer.attention, h); });
  if (layer.cross)
    sublayer("cross_attention", *layer.cross_norms,
             [&](graph::Value h) { return record(*layer.cross, h); });
  sublayer("ffn", layer.ffn_norms,
           [&](graph::Value h) { return layer.ffn->record(r, h, context); });
  return named("output", x);
}

void Stack::add_relative_bias(graph::Recorder& r, nn::LayerContext& context, std::int64_t queries,
                              std::int64_t keys) const {
  if (relative_bias_ < 0) return;
  context.relative_bias = context_.parameters.record(r, relative_bias_);
  context.buckets =
      nn::relative_buckets(queries, keys, relative_.buckets, relative_.max_distance, !causal_);
}

graph::Value Stack::operator()(graph::Recorder& r, Relay& relay, graph::Value x,
                               nn::LayerContext context, EncoderOutput* encoder_output) const {
  const std::int64_t length = context.rows.sequence_length;
  std::vector<std::pair<graph::Value*, Rows>> passed{{&x, context.rows}};
  if (encoder_output) {
    passed.emplace_back(&encoder_output->hidden, encoder_output->source.rows);
    context.source = &encoder_output->source;
  }
  bool ready = false;  // on this rank
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const bool received = relay.pass_to(stages_.of(first_ + static_cast<std::int64_t>(l)), passed);
    if (!relay.here()) continue;
    if (received && encoder_output) encoder_output->source.states = {};
    if (!ready) add_relative_bias(r, context, length, length);
    ready = true;
    if (encoder_output && !encoder_output->source.states)
      encoder_output->source.states = nn::enter_tp_region(r, context_, encoder_output->hidden);
    x = record_layer(r, l, x, context, [&](const nn::Mixer& mixer, graph::Value h) {
      return mixer.record(r, h, context);
    });
  }
  if (!relay.here()) return x;
  if (final_norm_) x = (*final_norm_)(r, x);
  if (final_norm_) nn::name_outside(r, context_, "final_norm", x, context.rows);
  if (!context.training || output_dropout_ == 0) return x;
  const graph::Recorder::Named name(r, "output");
  return ops::dropout_add(r, x, {}, output_dropout_,
                          nn::outside_tp_region(context_, context.rows, d_model_));
}

graph::Value Stack::decode(nn::Recording& rec, graph::Value x, const nn::Source* source) const {
  TFM_CHECK(causal_ && !context_.split_rows(),
            "new tokens must be on every rank of the tensor axis");
  graph::Recorder& r = *rec.tape;
  nn::LayerContext context{
      .rows = rec.shape.rows(), .capacity = rec.shape.capacity, .source = source};
  add_relative_bias(r, context, rec.shape.capacity, rec.shape.length);
  for (std::size_t l = 0; l < layers_.size(); ++l)
    x = record_layer(r, l, x, context, [&](const nn::Mixer& mixer, graph::Value h) {
      return mixer.record_decode(r, h, context, rec.add_states(mixer.states()));
    });
  return final_norm_ ? (*final_norm_)(r, x) : x;
}

void Stack::record_source(nn::Recording& rec, graph::Value encoder_states) const {
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const graph::Recorder::Named name(*rec.tape, "layers." + std::to_string(l),
                                      comm::Purpose::layers);
    for (const nn::Mixer* mixer : {layers_[l].attention.get(), layers_[l].cross.get()})
      for (const graph::Value made : mixer->record_source(*rec.tape, encoder_states))
        rec.states.push_back({made, nn::StateSpec::Kind::source});
  }
}

}  // namespace tfm::models
