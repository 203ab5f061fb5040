#include "nn/feed_forward.h"

namespace tfm::nn {

FeedForward::FeedForward(Context& c, const std::string& name, Options options)
    : context_(c),
      name_(last_component(name)),
      options_(options),
      up_(c,
          options.gated ? std::vector<PartSpec>{{name + ".gate", options.hidden},
                                                {name + ".up", options.hidden}}
                        : std::vector<PartSpec>{{name + ".up", options.hidden}},
          options.width, {Placement::shard_rows, options.bias, c.init_std}),
      down_(c, {{name + ".down", options.width}}, options.hidden,
            {Placement::shard_columns, options.bias, options.output_std}) {}

graph::Value FeedForward::record_inside(graph::Recorder& r, graph::Value x,
                                        const LayerContext& c) const {
  graph::Value h = ops::activation(r, up_(r, x), options_.activation, options_.gated);
  name_inside(r, context_, "hidden", h, c.rows, options_.hidden);
  if (c.training && options_.dropout > 0)
    h = ops::dropout_add(r, h, {}, options_.dropout,
                         inside_tp_region(context_, c.rows, options_.hidden));
  return down_(r, h);
}

graph::Value FeedForward::record(graph::Recorder& r, graph::Value x, const LayerContext& c) const {
  const graph::Recorder::Named scope(r, name_);
  return leave_tp_region(r, context_, record_inside(r, enter_tp_region(r, context_, x), c),
                         bias(r));
}

}  // namespace tfm::nn
