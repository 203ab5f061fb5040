#include "nn/linear_attention.h"

namespace tfm::nn {

LinearAttention::LinearAttention(Context& c, const std::string& name, Options options)
    : context_(c),
      name_(last_component(name)),
      options_(options),
      qkv_(c,
           {{name + ".query", options.sizes.width()},
            {name + ".key", options.sizes.width()},
            {name + ".value", options.sizes.width()}},
           options.width, {Placement::shard_rows, options.qkv_bias, c.init_std}),
      output_(c, {{name + ".output", options.width}}, options.sizes.width(),
              {Placement::shard_columns, options.bias, options.output_std}) {}

kernels::LinearSizes LinearAttention::sizes_of(int ranks) const {
  kernels::LinearSizes s = options_.sizes;
  s.heads = div_exact(s.heads, ranks);
  return s;
}

graph::Value LinearAttention::mix(graph::Recorder& r, graph::Value x, const LayerContext& c,
                                  graph::Value state) const {
  const graph::Recorder::Named scope(r, name_);
  const std::int64_t width = sizes_of(context_.shards).width();
  const graph::Value qkv = qkv_(r, enter_tp_region(r, context_, x)),
                     sums = ops::linear_attention(
                         r, ops::share_heads(r, qkv, {{width, width, width}}, c.rows),
                         sizes_of(context_.shards * c.rows.share.ranks), ops::whole(c.rows),
                         c.k_segments, state),
                     y = ops::share_positions(r, sums, {{width}}, c.rows);
  name_inside(r, context_, "heads", y, c.rows, options_.sizes.width());
  return leave_tp_region(r, context_, output_(r, y), output_.bias(r));
}

graph::Value LinearAttention::record(graph::Recorder& r, graph::Value x,
                                     const LayerContext& c) const {
  return mix(r, x, c, {});
}

std::vector<StateSpec> LinearAttention::states() const {
  const kernels::LinearSizes s = sizes_of(context_.shards);
  return {{StateSpec::Kind::fixed, s.heads * s.state(), true}};
}

graph::Value LinearAttention::record_decode(graph::Recorder& r, graph::Value x,
                                            const LayerContext& c,
                                            std::span<const graph::Value> states) const {
  return mix(r, x, c, states.front());
}

}  // namespace tfm::nn
