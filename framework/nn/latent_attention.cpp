#include "nn/latent_attention.h"

namespace tfm::nn {
namespace {

constexpr Norm::Options kNorm{.rms = true, .bias = false, .eps = 1e-6};

// Whole on each tensor rank.
Linear::Options down_options(const Context& c, bool bias) {
  return {.bias = bias, .std = c.init_std};
}

}  // namespace

// Parameters are registered in the order of their use.
LatentAttention::LatentAttention(Context& c, const std::string& name, Options options)
    : context_(c),
      name_(last_component(name)),
      options_(std::move(options)),
      query_down_(options_.query_rank == 0
                      ? std::nullopt
                      : std::optional<Linear>(
                            std::in_place, c,
                            std::vector<PartSpec>{{name + ".query_down", options_.query_rank}},
                            options_.width, down_options(c, options_.qkv_bias))),
      query_norm_(options_.query_rank == 0
                      ? std::nullopt
                      : std::optional<Norm>(std::in_place, c, name + ".query_norm",
                                            options_.query_rank, kNorm)),
      query_(c, {{name + ".query", options_.heads * options_.head_size}},
             options_.query_rank > 0 ? options_.query_rank : options_.width,
             {Placement::shard_rows, false, c.init_std}),
      down_(c, {{name + ".latent", options_.rank}}, options_.width,
            down_options(c, options_.qkv_bias)),
      norm_(c, name + ".latent_norm", options_.rank, kNorm),
      shared_(c, {{name + ".shared_key", options_.turning}}, options_.width,
              down_options(c, options_.qkv_bias)),
      up_(c.parameters.add(
          {.parts = {{name + ".key_value.weight",
                      options_.heads * (options_.head_size - options_.turning + options_.values)}},
           .cols = options_.rank,
           .placement = placed(Placement::shard_rows, kModelAxes),
           .init = {Init::Kind::normal, c.init_std},
           .decay = true,
           .hidden = true})),
      output_(c, {{name + ".output", options_.width}}, options_.heads * options_.values,
              {Placement::shard_columns, options_.bias, options_.output_std}) {}

ops::LatentOptions LatentAttention::latent_options(const Rows& rows, std::int64_t length) const {
  return {{div_exact(options_.heads, context_.shards), options_.head_size - options_.turning,
           options_.turning, options_.values},
          options_.rotary.frequencies(length),
          options_.rotary.factor,
          rows};
}

LatentAttention::Projections LatentAttention::project(graph::Recorder& r, graph::Value x) const {
  const graph::Value q = query_down_ ? (*query_norm_)(r, (*query_down_)(r, x)) : x,
                     latent = norm_(r, down_(r, x)), shared = shared_(r, x);
  const auto inside = [&](graph::Value v) { return enter_tp_region(r, context_, v); };
  return {query_(r, inside(q)), inside(latent), inside(shared)};
}

graph::Value LatentAttention::record(graph::Recorder& r, graph::Value x,
                                     const LayerContext& c) const {
  const graph::Recorder::Named scope(r, name_);
  const auto [q, latent, shared] = project(r, x);
  const ops::LatentOptions o = latent_options(c.rows, c.rows.sequence_length);
  const graph::Value kv = ops::linear(r, latent, context_.parameters.record(r, up_));
  ops::AttentionOptions a =
      options_on_rank(context_, options_, c.rows, c.rows, c.training, c.right_padded);
  a.visible = options_.visible;
  const graph::Value y = ops::attention(r,
                                        {.q = ops::latent_heads(r, q, kv, shared, o),
                                         .q_segments = c.q_segments,
                                         .k_segments = c.k_segments},
                                        std::move(a));
  const graph::Value heads = ops::latent_values(r, y, o.sizes);
  name_inside(r, context_, "heads", heads, c.rows, options_.heads * options_.values);
  return leave_tp_region(r, context_, output_(r, heads), output_.bias(r));
}

std::vector<StateSpec> LatentAttention::states() const {
  return {{.kind = StateSpec::Kind::growing,
           .width = options_.rank + options_.turning,
           .recent = options_.visible.recent()}};
}

// Heads have one key and one value in common, the cached row.
graph::Value LatentAttention::record_decode(graph::Recorder& r, graph::Value x,
                                            const LayerContext& c,
                                            std::span<const graph::Value> states) const {
  const graph::Recorder::Named scope(r, name_);
  const auto [q, latent, shared] = project(r, x);
  const graph::Value weight = context_.parameters.record(r, up_), cache = states.front();
  ops::AttentionOptions a =
      options_on_rank(context_, options_, c.rows, c.rows, c.training, c.right_padded);
  a.visible = options_.visible;
  a.kv_heads = 1;
  a.head_size = options_.rank + options_.turning;
  a.values_are_keys = true;
  a.keys = div_exact(r.info(cache).shape[0], c.rows.sequences);
  const ops::LatentOptions o = latent_options(c.rows, c.capacity);
  const graph::Value y = ops::cached_attention(
      r, ops::absorbed_heads(r, q, latent, shared, weight, o), cache, {}, {}, std::move(a));
  return leave_tp_region(r, context_, output_(r, ops::absorbed_values(r, y, weight, o.sizes)),
                         output_.bias(r));
}

}  // namespace tfm::nn
