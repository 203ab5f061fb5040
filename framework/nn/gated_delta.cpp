#include "nn/gated_delta.h"

namespace tfm::nn {
namespace {

constexpr Init kGateBias{Init::Kind::constant, 1};  // as published

}  // namespace

// Parameters are registered in the order of their use.
GatedDelta::GatedDelta(Context& c, const std::string& name, Options options)
    : Recurrence(c, name, options),
      gates_(c, {{name + ".beta", options.sizes.heads}, {name + ".decay", options.sizes.heads}},
             options.width, {Placement::shard_rows, false, c.init_std}),
      log_rate_(of_heads(c, {{name + ".decay.log_rate", options.sizes.heads}}, 0, kLogRate)),
      gate_bias_(of_heads(c, {{name + ".decay.bias", options.sizes.heads}}, 0, kGateBias)),
      output_gate_(c, {{name + ".output_gate", values()}}, options.width,
                   {Placement::shard_rows, false, c.init_std}),
      norm_(c, {{name + ".norm", options.sizes.heads}}, options.sizes.values,
            {{.rms = true, .bias = false, .eps = options.norm_eps}}),
      output_(c, {{name + ".output", options.width}}, values(),
              {Placement::shard_columns, options.bias, options.output_std}) {}

graph::Value GatedDelta::mix(graph::Recorder& r, graph::Value x, const LayerContext& c,
                             States states) const {
  const graph::Value qkv = qkv_(r, x), gates = gates_(r, x),
                     normed = norm_(r, read(r, qkv, gates, c, {log_rate_, gate_bias_}, states));
  return ops::gate(r, normed, output_gate_(r, x), kernels::Gate::silu);
}

}  // namespace tfm::nn
