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

graph::Value FeedForward::record(graph::Recorder& r, graph::Value x, const Rows& rows,
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
