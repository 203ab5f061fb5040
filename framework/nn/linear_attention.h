#pragma once
// Linear attention as a mixer (Katharopoulos et al. 2020, "Transformers are RNNs"). Heads are
// sharded over tensor ranks and, while sums pass through positions, over context ranks. Padding and
// documents see only themselves.
#include "nn/mixer.h"
#include "ops/head_shares.h"
#include "ops/linear_attention.h"

namespace tfm::nn {

class LinearAttention final : public Mixer {
 public:
  struct Options {
    std::int64_t width = 0;
    kernels::LinearSizes sizes = {};  // of all ranks
    bool qkv_bias = true, bias = true;
    double output_std = 0.02;
  };
  LinearAttention(Context& c, const std::string& name, Options options);
  graph::Value record(graph::Recorder& r, graph::Value x, const LayerContext& c) const override;
  // The sums over positions, of each head.
  std::vector<StateSpec> states() const override;
  graph::Value record_decode(graph::Recorder& r, graph::Value x, const LayerContext& c,
                             std::span<const graph::Value> states) const override;

 private:
  graph::Value mix(graph::Recorder& r, graph::Value x, const LayerContext& c,
                   graph::Value state) const;
  // Of each of so many ranks that share the heads.
  kernels::LinearSizes sizes_of(int ranks) const;

  Context context_;
  std::string name_;
  Options options_;
  Linear qkv_, output_;
};

}  // namespace tfm::nn
