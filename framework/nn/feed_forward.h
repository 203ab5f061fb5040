#pragma once
// The feed-forward network of a layer, dense or gated (Vaswani et al. 2017, 3.3; Shazeer 2020). Its
// hidden columns are sharded over tensor ranks.
#include "nn/mixer.h"

namespace tfm::nn {

class FeedForward final : public Ffn {
 public:
  struct Options {
    std::int64_t width = 0, hidden = 0;
    kernels::Activation activation = kernels::Activation::gelu_tanh;
    bool gated = false, bias = true;
    double dropout = 0, output_std = 0.02;
  };
  FeedForward(Context& c, const std::string& name, Options options);
  graph::Value record(graph::Recorder& r, graph::Value x, const LayerContext& c) const override;
  // The same without its bias, from x inside the tensor-parallel region to terms that leave it.
  graph::Value record_inside(graph::Recorder& r, graph::Value x, const LayerContext& c) const;
  graph::Value bias(graph::Recorder& r) const { return down_.bias(r); }

 private:
  Context context_;
  std::string name_;
  Options options_;
  Linear up_, down_;
};

}  // namespace tfm::nn
