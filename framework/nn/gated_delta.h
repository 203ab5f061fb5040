#pragma once
// The gated delta rule as a mixer (Yang et al. 2025, "Gated Delta Networks", section 3.4, and
// Qwen3-Next): queries, keys and values pass a short convolution, a state of each head decays and
// is corrected towards the values, and what is read from it is normalized and gated. Heads are
// sharded over tensor ranks and, while states pass through positions, over context ranks. Padding
// and documents begin a state anew.
#include "nn/mixer.h"
#include "ops/gated_delta.h"
#include "ops/head_shares.h"

namespace tfm::nn {

class GatedDelta final : public Mixer {
 public:
  struct Options {
    std::int64_t width = 0;
    kernels::DeltaSizes sizes = {};  // of all ranks
    std::int64_t convolution = 4;
    bool qkv_bias = false, bias = false;
    double norm_eps = 1e-6, output_std = 0.02;
  };
  GatedDelta(Context& c, const std::string& name, Options options);
  graph::Value record(graph::Recorder& r, graph::Value x, const LayerContext& c) const override;
  // The last inputs of the convolution, and the states of heads.
  std::vector<StateSpec> states() const override;
  graph::Value record_decode(graph::Recorder& r, graph::Value x, const LayerContext& c,
                             std::span<const graph::Value> states) const override;

 private:
  struct States {
    graph::Value inputs, heads;
  };
  graph::Value mix(graph::Recorder& r, graph::Value x, const LayerContext& c, States states) const;
  // Of each of so many ranks that share the heads.
  kernels::DeltaSizes sizes_of(int ranks) const;

  Context context_;
  std::string name_;
  Options options_;
  Linear qkv_;
  int convolution_;  // (2 KH Dk + H Dv, K)
  Linear gates_;
  int log_rate_, gate_bias_;  // (H)
  Linear output_gate_;
  HeadNorm norm_;
  Linear output_;
};

}  // namespace tfm::nn
