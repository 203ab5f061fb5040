#include "nn/gated_delta.h"

namespace tfm::nn {
namespace {

// The published initial values: rates between 0.01 and 16, biases 1.
constexpr Init kLogRate{Init::Kind::log_uniform, 16}, kGateBias{Init::Kind::constant, 1};

}  // namespace

// Parameters are registered in the order of their use.
GatedDelta::GatedDelta(Context& c, const std::string& name, Options options)
    : Recurrence(c, name, options),
      qkv_(c, qkv_parts(name, options), options.width,
           {Placement::shard_rows, options.qkv_bias, c.init_std}),
      convolution_(of_heads(c, qkv_parts(name, options, "_convolution.weight"), options.convolution,
                            {Init::Kind::normal, c.init_std})),
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
                     normed = norm_(r, read(r, qkv, gates, c,
                                            {.convolution = convolution_,
                                             .log_rate = log_rate_,
                                             .gate_bias = gate_bias_},
                                            states));
  return ops::gate(r, normed, output_gate_(r, x), kernels::Gate::silu);
}

}  // namespace tfm::nn
