#include "nn/mamba.h"

namespace tfm::nn {
namespace {

// Steps are of about 0.01 to 0.1: softplus(log x) is log(1 + x).
constexpr Init kStepBias{Init::Kind::log_uniform, 0.1}, kZeros{Init::Kind::constant, 0},
    kOnes{Init::Kind::constant, 1};

}  // namespace

// Parameters are registered in the order of their use.
Mamba::Mamba(Context& c, const std::string& name, Options options)
    : Recurrence(c, name, options),
      convolution_bias_(of_heads(c, qkv_parts(name, options, "_convolution.bias"), 0, kZeros)),
      steps_(c, {{name + ".step", options.sizes.heads}}, options.width,
             {Placement::shard_rows, options.qkv_bias, c.init_std}),
      log_rate_(of_heads(c, {{name + ".decay.log_rate", options.sizes.heads}}, 0, kLogRate)),
      step_bias_(of_heads(c, {{name + ".decay.bias", options.sizes.heads}}, 0, kStepBias)),
      skip_(of_heads(c, {{name + ".skip", options.sizes.heads}}, 0, kOnes)),
      output_gate_(c, {{name + ".output_gate", values()}}, options.width,
                   {Placement::shard_rows, options.qkv_bias, c.init_std}),
      norm_(of_heads(c, {{name + ".norm.weight", values()}}, 0, kOnes)),
      output_(c, {{name + ".output", options.width}}, values(),
              {Placement::shard_columns, options.bias, options.output_std}) {
  options_.sizes.corrects = false;
}

graph::Value Mamba::mix(graph::Recorder& r, graph::Value x, const LayerContext& c,
                        States states) const {
  const kernels::DeltaSizes mine = sizes_of(context_.shards);
  const graph::Value qkv = qkv_(r, x), steps = steps_(r, x),
                     heads = read(r, qkv, steps, c,
                                  {log_rate_, step_bias_, convolution_bias_, skip_}, states),
                     gated = ops::gate(r, heads, output_gate_(r, x), kernels::Gate::silu);
  return ops::width_norm(
      r, gated,
      {options_.norm_eps, std::vector(static_cast<std::size_t>(mine.key_heads),
                                      mine.heads / mine.key_heads * mine.values)},
      context_.parameters.record(r, norm_));
}

}  // namespace tfm::nn
