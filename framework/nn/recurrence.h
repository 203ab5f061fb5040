#pragma once
// What mixers share whose heads have a state that decays from position to position: queries, keys
// and values pass a short convolution, and ops::gated_delta() reads from the state. Heads are
// sharded over tensor ranks and, while states pass through positions, over context ranks. Padding
// and documents begin a state anew.
#include "nn/mixer.h"
#include "ops/gated_delta.h"
#include "ops/head_shares.h"

namespace tfm::nn {

class Recurrence : public Mixer {
 public:
  struct Options {
    std::int64_t width = 0;
    kernels::DeltaSizes sizes = {};  // of all ranks
    std::int64_t convolution = 4;
    bool qkv_bias = false, bias = false;
    double norm_eps = 1e-6, output_std = 0.02;
  };
  graph::Value record(graph::Recorder& r, graph::Value x, const LayerContext& c) const override;
  // The last inputs of the convolution, and the states of heads.
  std::vector<StateSpec> states() const override;
  graph::Value record_decode(graph::Recorder& r, graph::Value x, const LayerContext& c,
                             std::span<const graph::Value> states) const override;

 protected:
  // Registers the projections of queries, keys and values, and weights of the convolution.
  Recurrence(Context& c, const std::string& name, Options options);

  struct States {
    graph::Value inputs, heads;
  };
  // x and the result are rows inside the tensor-parallel region; the result is to be projected.
  virtual graph::Value mix(graph::Recorder& r, graph::Value x, const LayerContext& c,
                           States states) const = 0;
  virtual const Linear& output() const = 0;

  struct Parameters {
    int log_rate, gate_bias;    // (H)
    int convolution_bias = -1;  // (2 KH Dk + H Dv)
    int skip = -1;              // (H)
  };
  // What heads read from their states, of this rank's positions. `gates`: the projections of
  // ops::delta_gates().
  graph::Value read(graph::Recorder& r, graph::Value qkv, graph::Value gates, const LayerContext& c,
                    const Parameters& parameters, States states) const;

  // Registers a parameter of this rank's heads; cols 0: a vector.
  static int of_heads(Context& c, const std::vector<PartSpec>& parts, std::int64_t cols, Init init);
  // Queries, keys and values, named `name`.query`suffix` and so on.
  static std::vector<PartSpec> qkv_parts(const std::string& name, const Options& options,
                                         const std::string& suffix = "");
  std::int64_t values() const { return options_.sizes.heads * options_.sizes.values; }
  // The sizes on each of so many ranks that share the heads.
  kernels::DeltaSizes sizes_of(int ranks) const;

  // Rates of decay between 0.01 and 16.
  static constexpr Init kLogRate{Init::Kind::log_uniform, 16};

  Context context_;
  std::string name_;
  Options options_;
  Linear qkv_;
  int convolution_;  // (2 KH Dk + H Dv, K)

 private:
  graph::Value project(graph::Recorder& r, graph::Value x, const LayerContext& c,
                       States states) const;
};

}  // namespace tfm::nn
