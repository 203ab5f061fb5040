#include "nn/gated_delta.h"

namespace tfm::nn {
namespace {

// A parameter of this rank's heads.
int of_heads(Context& c, const std::vector<PartSpec>& parts, std::int64_t cols, Init init) {
  return c.parameters.add({.parts = parts,
                           .cols = cols,
                           .placement = placed(Placement::shard_rows, kModelAxes),
                           .init = init,
                           .decay = cols > 0});
}

// The published initial values: rates between 0.01 and 16, biases 1.
constexpr Init kLogRate{Init::Kind::log_uniform, 16}, kGateBias{Init::Kind::constant, 1};

}  // namespace

// Parameters are registered in the order of their use.
GatedDelta::GatedDelta(Context& c, const std::string& name, Options options)
    : context_(c),
      name_(last_component(name)),
      options_(options),
      qkv_(c,
           {{name + ".query", options.sizes.key_width()},
            {name + ".key", options.sizes.key_width()},
            {name + ".value", options.sizes.heads * options.sizes.values}},
           options.width, {Placement::shard_rows, options.qkv_bias, c.init_std}),
      convolution_(of_heads(
          c,
          {{name + ".query_convolution.weight", options.sizes.key_width()},
           {name + ".key_convolution.weight", options.sizes.key_width()},
           {name + ".value_convolution.weight", options.sizes.heads * options.sizes.values}},
          options.convolution, {Init::Kind::normal, c.init_std})),
      gates_(c, {{name + ".beta", options.sizes.heads}, {name + ".decay", options.sizes.heads}},
             options.width, {Placement::shard_rows, false, c.init_std}),
      log_rate_(of_heads(c, {{name + ".decay.log_rate", options.sizes.heads}}, 0, kLogRate)),
      gate_bias_(of_heads(c, {{name + ".decay.bias", options.sizes.heads}}, 0, kGateBias)),
      output_gate_(c, {{name + ".output_gate", options.sizes.heads * options.sizes.values}},
                   options.width, {Placement::shard_rows, false, c.init_std}),
      norm_(c, {{name + ".norm", options.sizes.heads}}, options.sizes.values,
            {{.rms = true, .bias = false, .eps = options.norm_eps}}),
      output_(c, {{name + ".output", options.width}}, options.sizes.heads * options.sizes.values,
              {Placement::shard_columns, options.bias, options.output_std}) {}

kernels::DeltaSizes GatedDelta::sizes_of(int ranks) const {
  kernels::DeltaSizes s = options_.sizes;
  s.key_heads = div_exact(s.key_heads, ranks);
  s.heads = div_exact(s.heads, ranks);
  return s;
}

graph::Value GatedDelta::mix(graph::Recorder& r, graph::Value x, const LayerContext& c,
                             States states) const {
  const graph::Recorder::Named scope(r, name_);
  const auto parameter = [&](int p) { return context_.parameters.record(r, p); };
  const SequenceShare& share = c.rows.share;
  const kernels::DeltaSizes mine = sizes_of(context_.shards);
  const kernels::HeadSections qkv_of{
      {mine.key_width(), mine.key_width(), mine.heads * mine.values}},
      heads{{mine.heads}}, values{{mine.heads * mine.values}};
  const auto of_share = [&](int p, const kernels::HeadSections& sections) {
    return ops::share_of(r, parameter(p), sections, share);
  };
  const Rows rows = ops::whole(c.rows);
  x = enter_tp_region(r, context_, x);
  const graph::Value qkv = ops::short_convolution(
                         r, ops::share_heads(r, qkv_(r, x), qkv_of, c.rows),
                         of_share(convolution_, qkv_of), rows, c.k_segments, states.inputs),
                     gates = ops::delta_gates(
                         r, ops::share_heads(r, gates_(r, x), {{mine.heads, mine.heads}}, c.rows),
                         of_share(log_rate_, heads), of_share(gate_bias_, heads)),
                     read = ops::gated_delta(r, qkv, gates, sizes_of(context_.shards * share.ranks),
                                             rows, c.k_segments, states.heads),
                     normed = norm_(r, ops::share_positions(r, read, values, c.rows)),
                     y = ops::gate(r, normed, output_gate_(r, x), kernels::Gate::silu);
  name_inside(r, context_, "heads", y, c.rows, options_.sizes.heads * options_.sizes.values);
  return leave_tp_region(r, context_, output_(r, y), output_.bias(r));
}

graph::Value GatedDelta::record(graph::Recorder& r, graph::Value x, const LayerContext& c) const {
  return mix(r, x, c, {});
}

std::vector<StateSpec> GatedDelta::states() const {
  const kernels::DeltaSizes s = sizes_of(context_.shards);
  return {{StateSpec::Kind::fixed, (options_.convolution - 1) * s.width()},
          {StateSpec::Kind::fixed, s.heads * s.state(), true}};
}

graph::Value GatedDelta::record_decode(graph::Recorder& r, graph::Value x, const LayerContext& c,
                                       std::span<const graph::Value> states) const {
  return mix(r, x, c, {states[0], states[1]});
}

}  // namespace tfm::nn
