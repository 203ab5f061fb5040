#include "nn/recurrence.h"

namespace tfm::nn {

Recurrence::Recurrence(Context& c, const std::string& name, Options options)
    : context_(c),
      name_(last_component(name)),
      options_(options),
      qkv_(c, qkv_parts(name, options), options.width,
           {Placement::shard_rows, options.qkv_bias, c.init_std}),
      convolution_(of_heads(c, qkv_parts(name, options, "_convolution.weight"), options.convolution,
                            {Init::Kind::normal, c.init_std})) {}

int Recurrence::of_heads(Context& c, const std::vector<PartSpec>& parts, std::int64_t cols,
                         Init init) {
  return c.parameters.add({.parts = parts,
                           .cols = cols,
                           .placement = placed(Placement::shard_rows, kModelAxes),
                           .init = init,
                           .decay = cols > 0});
}

std::vector<PartSpec> Recurrence::qkv_parts(const std::string& name, const Options& options,
                                            const std::string& suffix) {
  const kernels::DeltaSizes& s = options.sizes;
  return {{name + ".query" + suffix, s.key_width()},
          {name + ".key" + suffix, s.key_width()},
          {name + ".value" + suffix, s.heads * s.values}};
}

kernels::DeltaSizes Recurrence::sizes_of(int ranks) const {
  kernels::DeltaSizes s = options_.sizes;
  s.key_heads = div_exact(s.key_heads, ranks);
  s.heads = div_exact(s.heads, ranks);
  return s;
}

graph::Value Recurrence::read(graph::Recorder& r, graph::Value qkv, graph::Value gates,
                              const LayerContext& c, const Parameters& p, States states) const {
  const SequenceShare& share = c.rows.share;
  const kernels::DeltaSizes mine = sizes_of(context_.shards);
  const kernels::HeadSections qkv_of{
      {mine.key_width(), mine.key_width(), mine.heads * mine.values}},
      heads{{mine.heads}}, values_of{{mine.heads * mine.values}},
      gates_of{{mine.heads, r.info(gates).shape[1] - mine.heads}};
  const auto of_share = [&](int parameter, const kernels::HeadSections& sections) {
    if (parameter < 0) return graph::Value{};
    return ops::share_of(r, context_.parameters.record(r, parameter), sections, share);
  };
  const Rows rows = ops::whole(c.rows);
  const graph::Value convolved = ops::short_convolution(r, ops::share_heads(r, qkv, qkv_of, c.rows),
                                                        of_share(convolution_, qkv_of),
                                                        of_share(p.convolution_bias, qkv_of), rows,
                                                        c.k_segments, states.inputs),
                     of_heads = ops::delta_gates(r, ops::share_heads(r, gates, gates_of, c.rows),
                                                 of_share(p.log_rate, heads),
                                                 of_share(p.gate_bias, heads)),
                     read = ops::gated_delta(r, convolved, of_heads, of_share(p.skip, heads),
                                             sizes_of(context_.shards * share.ranks), rows,
                                             c.k_segments, states.heads);
  return ops::share_positions(r, read, values_of, c.rows);
}

graph::Value Recurrence::project(graph::Recorder& r, graph::Value x, const LayerContext& c,
                                 States states) const {
  const graph::Recorder::Named scope(r, name_);
  const graph::Value y = mix(r, enter_tp_region(r, context_, x), c, states);
  name_inside(r, context_, "heads", y, c.rows, values());
  return leave_tp_region(r, context_, output()(r, y), output().bias(r));
}

graph::Value Recurrence::record(graph::Recorder& r, graph::Value x, const LayerContext& c) const {
  return project(r, x, c, {});
}

std::vector<StateSpec> Recurrence::states() const {
  const kernels::DeltaSizes s = sizes_of(context_.shards);
  return {{StateSpec::Kind::fixed, (options_.convolution - 1) * s.width()},
          {StateSpec::Kind::fixed, s.heads * s.state(), true}};
}

graph::Value Recurrence::record_decode(graph::Recorder& r, graph::Value x, const LayerContext& c,
                                       std::span<const graph::Value> states) const {
  return project(r, x, c, {states[0], states[1]});
}

}  // namespace tfm::nn
