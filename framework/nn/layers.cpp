#include "nn/layers.h"

#include "nn/positions.h"

namespace tfm::nn {
namespace {

std::string suffixed(const std::string& name, const char* suffix) { return name + suffix; }

std::vector<PartSpec> renamed(const std::vector<PartSpec>& parts, const char* suffix) {
  std::vector<PartSpec> out;
  for (const PartSpec& p : parts) out.push_back({suffixed(p.name, suffix), p.rows});
  return out;
}

}  // namespace

Linear::Linear(Context& c, const std::vector<PartSpec>& outputs, std::int64_t inputs,
               Options options)
    : parameters_(&c.parameters),
      reduced_(options.placement == Placement::shard_columns && c.split()) {
  const bool rows = options.placement == Placement::shard_rows,
             terms = options.partial ? c.split() : c.split_rows();
  weight_ = c.parameters.add(
      {.parts = renamed(outputs, ".weight"),
       .cols = inputs,
       .placement = placed(options.placement, kModelAxes),
       .init = {Init::Kind::normal, options.std},
       .decay = true,
       .hidden = options.hidden,
       .partial = c.partial_where(options.placement == Placement::replicate && terms)});
  if (options.bias)
    bias_ = c.parameters.add(
        {.parts = renamed(outputs, ".bias"),
         .placement = rows ? placed(Placement::shard_rows, kModelAxes) : Placements{},
         .partial = c.partial_where(!rows && terms)});
}

graph::Value Linear::operator()(graph::Recorder& r, graph::Value x) const {
  return ops::linear(r, x, parameters_->record(r, weight_), reduced_ ? graph::Value{} : bias(r));
}

Norm::Norm(Context& c, const std::string& name, std::int64_t width, Options options)
    : parameters_(&c.parameters), name_(name), options_(options) {
  gain_ = c.parameters.add({.parts = {{name + ".weight", width}},
                            .init = {Init::Kind::constant, 1.0},
                            .partial = c.partial_where(c.split_rows())});
  if (options.bias && !options.rms)
    shift_ = c.parameters.add(
        {.parts = {{name + ".bias", width}}, .partial = c.partial_where(c.split_rows())});
}

graph::Value Norm::operator()(graph::Recorder& r, graph::Value x) const {
  const graph::Recorder::Named scope(r, name_.substr(name_.rfind('.') + 1));
  return ops::norm(r, x, {options_.eps, options_.rms}, parameters_->record(r, gain_),
                   shift_ < 0 ? graph::Value{} : parameters_->record(r, shift_));
}

HeadNorm::HeadNorm(Context& c, const std::vector<std::string>& names, std::int64_t head_size,
                   Norm::Options options)
    : parameters_(&c.parameters), head_size_(head_size), options_(options) {
  std::vector<PartSpec> parts;
  for (const std::string& name : names) parts.push_back({name, head_size});
  gain_ = c.parameters.add({.parts = renamed(parts, ".weight"),
                            .init = {Init::Kind::constant, 1.0},
                            .partial = c.partial_where(c.split())});
  if (options.bias && !options.rms)
    shift_ =
        c.parameters.add({.parts = renamed(parts, ".bias"), .partial = c.partial_where(c.split())});
}

graph::Value HeadNorm::operator()(graph::Recorder& r, graph::Value x,
                                  std::vector<std::int64_t> groups) const {
  const graph::Recorder::Named scope(r, "qk_norm");
  return ops::head_norm(r, x, {{options_.eps, options_.rms}, head_size_, std::move(groups)},
                        parameters_->record(r, gain_),
                        shift_ < 0 ? graph::Value{} : parameters_->record(r, shift_));
}

graph::Value enter_tp_region(graph::Recorder& r, const Context& c, graph::Value x) {
  if (!c.split()) return x;
  return c.sequence ? ops::gather_sequence(r, x, c.shards) : ops::copy_to_tp_region(r, x);
}

graph::Value leave_tp_region(graph::Recorder& r, const Context& c, graph::Value partial,
                             graph::Value bias) {
  if (!c.split()) return partial;
  return c.sequence ? ops::scatter_sequence(r, partial, c.shards, bias)
                    : ops::reduce_from_tp_region(r, partial, bias);
}

ops::ActivationRegion outside_tp_region(const Context& c, const Rows& rows, std::int64_t width) {
  const std::int64_t offset = c.split_rows() ? c.rows_outside(rows) * c.shard : 0;
  return {rows, offset, 0, width};
}

ops::ActivationRegion inside_tp_region(const Context& c, const Rows& rows,
                                       std::int64_t full_width) {
  return {rows, 0, full_width / c.shards * c.shard, full_width};
}

namespace {

template <class Options>
ops::AttentionOptions on_this_rank(const Context& c, const Options& o, const Rows& queries,
                                   const Rows& keys, bool training,
                                   const AttentionContext& attention) {
  const std::int64_t heads = div_exact(o.heads, c.shards);
  return {.heads = heads,
          .kv_heads = div_exact(o.kv_heads, c.shards),
          .head_size = o.head_size,
          .queries = queries.sequence_length,
          .keys = keys.sequence_length,
          .scale = o.scale,
          .right_padded = attention.right_padded,
          .dropout = training ? o.dropout : 0,
          .head_offset = heads * c.shard,
          .heads_total = o.heads,
          .buckets = attention.buckets,
          .share = queries.share,
          .ring = c.ring};
}

template <class Options>
std::optional<HeadNorm> head_norm(Context& c, const std::vector<std::string>& names,
                                  const Options& o) {
  if (!o.qk_norm) return std::nullopt;
  return std::optional<HeadNorm>(std::in_place, c, names, o.head_size, *o.qk_norm);
}

}  // namespace

SelfAttention::SelfAttention(Context& c, const std::string& name, Options options)
    : context_(c),
      name_(name.substr(name.rfind('.') + 1)),
      options_(std::move(options)),
      qkv_(c,
           {{name + ".query", options_.heads * options_.head_size},
            {name + ".key", options_.kv_heads * options_.head_size},
            {name + ".value", options_.kv_heads * options_.head_size}},
           options_.width, {Placement::shard_rows, options_.qkv_bias, c.init_std}),
      norm_(head_norm(c, {name + ".query_norm", name + ".key_norm"}, options_)),
      output_(c, {{name + ".output", options_.width}}, options_.heads * options_.head_size,
              {Placement::shard_columns, options_.bias, options_.output_std}) {}

graph::Value SelfAttention::operator()(graph::Recorder& r, graph::Value x, const Rows& rows,
                                       bool training, const AttentionContext& attention) const {
  const graph::Recorder::Named scope(r, name_);
  ops::AttentionOptions a = on_this_rank(context_, options_, rows, rows, training, attention);
  a.causal = options_.causal;
  if (options_.alibi) {
    const auto slopes = alibi_slopes(options_.heads);
    a.alibi_slopes.assign(slopes.begin() + a.head_offset, slopes.begin() + a.head_offset + a.heads);
  }
  graph::Value qkv = qkv_(r, enter_tp_region(r, context_, x));
  if (norm_) qkv = (*norm_)(r, qkv, {a.heads, a.kv_heads});
  if (!options_.rotary_frequency.empty())
    qkv = ops::rotary(r, qkv,
                      {a.heads + a.kv_heads, options_.head_size, options_.rotary_frequency, rows});
  if (attention.cache) a.keys = div_exact(r.info(attention.cache).shape[0], rows.sequences);
  const graph::Value y =
      attention.cache
          ? ops::cached_attention(r, qkv, attention.cache, attention.relative_bias, std::move(a))
          : ops::attention(
                r, {qkv, {}, attention.q_segments, attention.k_segments, attention.relative_bias},
                std::move(a));
  return leave_tp_region(r, context_, output_(r, y), output_.bias(r));
}

CrossAttention::CrossAttention(Context& c, const std::string& name, Options options)
    : context_(c),
      name_(name.substr(name.rfind('.') + 1)),
      options_(options),
      query_(c, {{name + ".query", options.heads * options.head_size}}, options.width,
             {Placement::shard_rows, options.qkv_bias, c.init_std}),
      kv_(c,
          {{name + ".key", options.kv_heads * options.head_size},
           {name + ".value", options.kv_heads * options.head_size}},
          options.encoder_width, {Placement::shard_rows, options.qkv_bias, c.init_std}),
      query_norm_(head_norm(c, {name + ".query_norm"}, options)),
      key_norm_(head_norm(c, {name + ".key_norm"}, options)),
      output_(c, {{name + ".output", options.width}}, options.heads * options.head_size,
              {Placement::shard_columns, options.bias, options.output_std}) {}

graph::Value CrossAttention::keys_values(graph::Recorder& r, graph::Value encoder_states) const {
  const graph::Recorder::Named scope(r, name_);
  const graph::Value kv = kv_(r, encoder_states);
  return key_norm_ ? (*key_norm_)(r, kv, {div_exact(options_.kv_heads, context_.shards)}) : kv;
}

graph::Value CrossAttention::operator()(graph::Recorder& r, graph::Value x,
                                        graph::Value keys_values, const Rows& target,
                                        const Rows& source, bool training,
                                        const AttentionContext& attention) const {
  const graph::Recorder::Named scope(r, name_);
  ops::AttentionOptions a = on_this_rank(context_, options_, target, source, training, attention);
  a.causal = false;
  graph::Value q = query_(r, enter_tp_region(r, context_, x));
  if (query_norm_) q = (*query_norm_)(r, q, {a.heads});
  const graph::Value y = ops::attention(
      r, {q, keys_values, attention.q_segments, attention.k_segments, attention.relative_bias},
      std::move(a));
  return leave_tp_region(r, context_, output_(r, y), output_.bias(r));
}

FeedForward::FeedForward(Context& c, const std::string& name, Options options)
    : context_(c),
      name_(name.substr(name.rfind('.') + 1)),
      options_(options),
      up_(c,
          options.gated ? std::vector<PartSpec>{{name + ".gate", options.hidden},
                                                {name + ".up", options.hidden}}
                        : std::vector<PartSpec>{{name + ".up", options.hidden}},
          options.width, {Placement::shard_rows, options.bias, c.init_std}),
      down_(c, {{name + ".down", options.width}}, options.hidden,
            {Placement::shard_columns, options.bias, options.output_std}) {}

graph::Value FeedForward::operator()(graph::Recorder& r, graph::Value x, const Rows& rows,
                                     bool training) const {
  const graph::Recorder::Named scope(r, name_);
  graph::Value h = ops::activation(r, up_(r, enter_tp_region(r, context_, x)), options_.activation,
                                   options_.gated);
  if (training && options_.dropout > 0)
    h = ops::dropout_add(r, h, {}, options_.dropout,
                         inside_tp_region(context_, rows, options_.hidden));
  return leave_tp_region(r, context_, down_(r, h), down_.bias(r));
}

}  // namespace tfm::nn
