#pragma once
// A mixture of experts (Shazeer et al. 2017; Fedus et al. 2022): each token goes to the `top_k` of
// several feed-forward networks that a router scores highest, and to shared ones that all tokens go
// to (Dai et al. 2024). No token is dropped. The hidden columns of all networks are sharded over
// tensor ranks, which choose alike.
#include <optional>

#include "nn/feed_forward.h"
#include "ops/experts.h"

namespace tfm::nn {

class Experts final : public Ffn {
 public:
  struct Options {
    kernels::RouterOptions router;   // without rows
    FeedForward::Options expert;     // each of them
    std::int64_t shared_hidden = 0;  // width of the network that all tokens go to; 0: none
    bool shared_gate = false;        // a sigmoid for each token weighs its result
  };
  Experts(Context& c, const std::string& name, Options options);
  graph::Value record(graph::Recorder& r, graph::Value x, const LayerContext& c) const override;

 private:
  void add_terms(graph::Recorder& r, const ops::Routing& routing,
                 const kernels::RouterOptions& router, RouterTerms& terms) const;

  Context context_;
  std::string name_;
  Options options_;
  int router_, up_, up_bias_ = -1, down_, down_bias_ = -1, shared_gate_ = -1;
  std::optional<FeedForward> shared_;
};

}  // namespace tfm::nn
