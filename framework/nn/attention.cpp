#include "nn/attention.h"

#include "nn/positions.h"
#include "ops/gated_delta.h"

namespace tfm::nn {
ops::AttentionOptions options_on_rank(const Context& c, const AttentionOptions& o,
                                      const Rows& queries, const Rows& keys, bool training,
                                      bool right_padded) {
  const std::int64_t heads = div_exact(o.heads, c.shards);
  return {.heads = heads,
          .kv_heads = div_exact(o.kv_heads, c.shards),
          .head_size = o.head_size,
          .queries = queries.sequence_length,
          .keys = keys.sequence_length,
          .scale = o.scale,
          .softcap = o.softcap,
          .visible = {},
          .right_padded = right_padded,
          .dropout = training ? o.dropout : 0,
          .head_offset = heads * c.shard,
          .heads_total = o.heads,
          .share = queries.share,
          .ring = c.ring};
}

namespace {

std::int64_t kv_width(const Context& c, const AttentionOptions& o) {
  return 2 * o.head_size * div_exact(o.kv_heads, c.shards);
}

std::optional<HeadNorm> head_norm(Context& c, const std::vector<HeadNorm::Group>& groups,
                                  const AttentionOptions& o) {
  if (!o.qk_norm) return std::nullopt;
  return std::optional<HeadNorm>(std::in_place, c, groups, o.head_size, *o.qk_norm);
}

// -1: none.
int add_sinks(Context& c, const std::string& name, const AttentionOptions& o) {
  if (!o.sinks) return -1;
  return c.parameters.add({.parts = {{name + ".sinks", o.heads}},
                           .placement = placed(Placement::shard_rows, kModelAxes),
                           .init = {Init::Kind::normal, c.init_std}});
}
Linear make_projections(Context& c, const std::string& name, const AttentionOptions& o,
                        const std::string& of = "") {
  return Linear(c,
                {{name + "." + of + "query", o.heads * o.head_size},
                 {name + "." + of + "key", o.kv_heads * o.head_size},
                 {name + "." + of + "value", o.kv_heads * o.head_size}},
                o.width, {Placement::shard_rows, o.qkv_bias, c.init_std});
}
graph::Value record_sinks(const Context& c, graph::Recorder& r, int sinks) {
  return sinks < 0 ? graph::Value{} : c.parameters.record(r, sinks);
}

void name_queries(graph::Recorder& r, const Context& c, const AttentionOptions& o, graph::Value v,
                  const Rows& rows) {
  name_inside(r, c, "query", v, rows, o.heads * o.head_size);
}
// Keys and values, from a column of v on.
void name_keys_values(graph::Recorder& r, const Context& c, const AttentionOptions& o,
                      graph::Value v, const Rows& rows, std::int64_t column) {
  const std::int64_t width = o.kv_heads * o.head_size;
  name_inside(r, c, "key", v, rows, width, column);
  name_inside(r, c, "value", v, rows, width, column + width / c.shards);
}

}  // namespace

SelfAttention::SelfAttention(Context& c, const std::string& name, Options options)
    : context_(c),
      name_(last_component(name)),
      options_(std::move(options)),
      qkv_(make_projections(c, name, options_)),
      global_(options_.own_projections > 0
                  ? std::optional<Linear>(make_projections(c, name, options_, "global_"))
                  : std::nullopt),
      norm_(head_norm(
          c, {{name + ".query_norm", options_.heads}, {name + ".key_norm", options_.kv_heads}},
          options_)),
      sinks_(add_sinks(c, name, options_)),
      gate_(options_.output_gate
                ? std::optional<Linear>(
                      std::in_place, c,
                      std::vector<PartSpec>{
                          {name + ".output_gate", options_.heads * options_.head_size}},
                      options_.width,
                      Linear::Options{Placement::shard_rows, options_.qkv_bias, c.init_std})
                : std::nullopt),
      output_(c, {{name + ".output", options_.width}}, options_.heads * options_.head_size,
              {Placement::shard_columns, options_.bias, options_.output_std}) {}

ops::AttentionOptions SelfAttention::op_options(const LayerContext& c,
                                                const Visibility& visible) const {
  ops::AttentionOptions a =
      options_on_rank(context_, options_, c.rows, c.rows, c.training, c.right_padded);
  a.visible = visible;
  if (options_.relative) a.buckets = c.buckets;
  if (options_.alibi) {
    const auto slopes = alibi_slopes(options_.heads);
    a.alibi_slopes.assign(slopes.begin() + a.head_offset, slopes.begin() + a.head_offset + a.heads);
  }
  return a;
}

graph::Value SelfAttention::queries_keys_values(graph::Recorder& r, const Linear& projections,
                                                graph::Value x, const Rows& rows,
                                                std::int64_t length) const {
  const std::int64_t heads = div_exact(options_.heads, context_.shards),
                     kv_heads = div_exact(options_.kv_heads, context_.shards);
  graph::Value qkv = projections(r, x);
  if (norm_) qkv = (*norm_)(r, qkv);
  const Rotary& rotary = options_.rotary;
  if (!rotary.frequency.empty())
    qkv = ops::rotary(
        r, qkv,
        {heads + kv_heads, options_.head_size, rotary.frequencies(length), rotary.factor, rows});
  if (&projections == &qkv_) {  // those for global positions have no names
    name_queries(r, context_, options_, qkv, rows);
    name_keys_values(r, context_, options_, qkv, rows, heads * options_.head_size);
  }
  return qkv;
}

graph::Value SelfAttention::gated_output(graph::Recorder& r, graph::Value x, graph::Value y,
                                         const Rows& rows) const {
  if (gate_) y = ops::gate(r, y, (*gate_)(r, x), kernels::Gate::sigmoid);
  name_inside(r, context_, "heads", y, rows, options_.heads * options_.head_size);
  return leave_tp_region(r, context_, output_(r, y), output_.bias(r));
}

graph::Value SelfAttention::record(graph::Recorder& r, graph::Value x,
                                   const LayerContext& c) const {
  const graph::Recorder::Named scope(r, name_);
  x = enter_tp_region(r, context_, x);
  Visibility own = options_.visible, first{};
  if (global_) own.beyond.from = first.beyond.to = options_.own_projections;
  graph::Value y = attend(r, qkv_, own, x, c);
  if (global_) {
    const graph::Recorder::Named of_global(r, "global");
    y = ops::dropout_add(r, attend(r, *global_, first, x, c), y, 0,
                         inside_tp_region(context_, c.rows, options_.heads * options_.head_size));
  }
  return gated_output(r, x, y, c.rows);
}

graph::Value SelfAttention::attend(graph::Recorder& r, const Linear& projections,
                                   const Visibility& visible, graph::Value x,
                                   const LayerContext& c) const {
  return ops::attention(
      r,
      {.q = queries_keys_values(r, projections, x, c.rows, c.rows.sequence_length),
       .q_segments = c.q_segments,
       .k_segments = c.k_segments,
       .prefixes = options_.prefix ? c.prefixes : graph::Value{},
       .relative_bias = options_.relative ? c.relative_bias : graph::Value{},
       .sinks = record_sinks(context_, r, sinks_)},
      op_options(c, visible));
}

std::vector<StateSpec> SelfAttention::states() const {
  return {{.kind = StateSpec::Kind::growing,
           .width = kv_width(context_, options_),
           .recent = options_.prefix || options_.relative ? 0 : options_.visible.recent()}};
}

graph::Value SelfAttention::record_decode(graph::Recorder& r, graph::Value x, const LayerContext& c,
                                          std::span<const graph::Value> states) const {
  const graph::Recorder::Named scope(r, name_);
  x = enter_tp_region(r, context_, x);
  const graph::Value cache = states.front();
  ops::AttentionOptions a = op_options(c, options_.visible);
  a.keys = div_exact(r.info(cache).shape[0], c.rows.sequences);
  if (options_.prefix && a.queries > 1) a.visible.beyond.prefix = a.keys;
  const graph::Value y =
      ops::cached_attention(r, queries_keys_values(r, qkv_, x, c.rows, c.capacity), cache,
                            options_.relative ? c.relative_bias : graph::Value{},
                            record_sinks(context_, r, sinks_), std::move(a));
  return gated_output(r, x, y, c.rows);
}

CrossAttention::CrossAttention(Context& c, const std::string& name, Options options)
    : context_(c),
      name_(last_component(name)),
      options_(options),
      query_(c, {{name + ".query", options.heads * options.head_size}}, options.width,
             {Placement::shard_rows, options.qkv_bias, c.init_std}),
      kv_(c,
          {{name + ".key", options.kv_heads * options.head_size},
           {name + ".value", options.kv_heads * options.head_size}},
          options.encoder_width, {Placement::shard_rows, options.qkv_bias, c.init_std}),
      query_norm_(head_norm(c, {{name + ".query_norm", options.heads}}, options)),
      key_norm_(head_norm(c, {{name + ".key_norm", options.kv_heads}}, options)),
      sinks_(add_sinks(c, name, options)),
      output_(c, {{name + ".output", options.width}}, options.heads * options.head_size,
              {Placement::shard_columns, options.bias, options.output_std}) {}

graph::Value CrossAttention::keys_values(graph::Recorder& r, graph::Value encoder_states) const {
  const graph::Value kv = kv_(r, encoder_states);
  return key_norm_ ? (*key_norm_)(r, kv) : kv;
}

graph::Value CrossAttention::attend(graph::Recorder& r, graph::Value x, graph::Value keys_values,
                                    const LayerContext& c) const {
  const Source& source = *c.source;
  const Rows queries{source.rows.sequences,
                     div_exact(c.rows.sequences * c.rows.sequence_length, source.rows.sequences),
                     c.rows.share};
  ops::AttentionOptions a =
      options_on_rank(context_, options_, queries, source.rows, c.training, source.right_padded);
  graph::Value q = query_(r, enter_tp_region(r, context_, x));
  if (query_norm_) q = (*query_norm_)(r, q);
  name_queries(r, context_, options_, q, queries);
  const graph::Value y = ops::attention(r,
                                        {.q = q,
                                         .kv = keys_values,
                                         .k_segments = source.segments,
                                         .sinks = record_sinks(context_, r, sinks_)},
                                        std::move(a));
  name_inside(r, context_, "heads", y, queries, options_.heads * options_.head_size);
  return leave_tp_region(r, context_, output_(r, y), output_.bias(r));
}

graph::Value CrossAttention::record(graph::Recorder& r, graph::Value x,
                                    const LayerContext& c) const {
  const graph::Recorder::Named scope(r, name_, comm::Purpose::cross_attention);
  const graph::Value kv = keys_values(r, c.source->states);
  name_keys_values(r, context_, options_, kv, c.source->rows, 0);
  return attend(r, x, kv, c);
}

std::vector<StateSpec> CrossAttention::states() const {
  return {{StateSpec::Kind::source, kv_width(context_, options_)}};
}

graph::Value CrossAttention::record_decode(graph::Recorder& r, graph::Value x,
                                           const LayerContext& c,
                                           std::span<const graph::Value> states) const {
  const graph::Recorder::Named scope(r, name_, comm::Purpose::cross_attention);
  return attend(r, x, states.front(), c);
}

std::vector<graph::Value> CrossAttention::record_source(graph::Recorder& r,
                                                        graph::Value encoder_states) const {
  const graph::Recorder::Named scope(r, name_, comm::Purpose::cross_attention);
  return {keys_values(r, encoder_states)};
}

}  // namespace tfm::nn
