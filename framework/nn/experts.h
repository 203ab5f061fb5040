#pragma once
// A mixture of experts (Shazeer et al. 2017; Fedus et al. 2022): each token goes to the `top_k` of
// several feed-forward networks that a router scores highest, and to shared ones that all tokens go
// to (Dai et al. 2024). No token is dropped but for `capacity_factor`. The hidden columns of all
// networks are sharded over tensor ranks, which choose alike; ranks along kExpertAxes have equal
// numbers of the experts, and tokens travel to them and back (Lepikhin et al. 2021).
#include <optional>

#include "nn/feed_forward.h"
#include "ops/experts.h"

namespace tfm::nn {

class Experts final : public Ffn {
 public:
  struct Options {
    kernels::RouterOptions router;   // without rows
    bool router_bias = false;        // of logits
    bool load_bias = false;          // of choices, see ops::route
    double jitter = 0;               // of inputs of the router in training, see ops::jitter
    FeedForward::Options expert;     // each of them
    std::int64_t shared_hidden = 0;  // width of the network that all tokens go to; 0: none
    bool shared_gate = false;        // a sigmoid for each token weighs its result
    // In training, slots of an expert in a sequence, as a multiple of an even load; 0: as
    // router.capacity says.
    double capacity_factor = 0;
  };
  Experts(Context& c, const std::string& name, Options options);
  graph::Value record(graph::Recorder& r, graph::Value x, const LayerContext& c) const override;

 private:
  // The sum over the experts of each token's, inside the tensor-parallel region. `here`: set to the
  // routing of the rows that this rank computes.
  graph::Value record_routed(graph::Recorder& r, graph::Value x, const ops::Routing& routing,
                             ops::Routing& here, const kernels::RouterOptions& router,
                             const LayerContext& c) const;
  void add_terms(graph::Recorder& r, const ops::Routing& routing,
                 const kernels::RouterOptions& router, RouterTerms& terms) const;

  graph::Value parameter(graph::Recorder& r, int i) const {
    return i < 0 ? graph::Value{} : context_.parameters.record(r, i);
  }

  Context context_;
  std::string name_;
  Options options_;
  int router_, router_bias_ = -1, load_bias_ = -1, up_, up_bias_ = -1, down_, down_bias_ = -1,
               shared_gate_ = -1;
  std::optional<FeedForward> shared_;
};

}  // namespace tfm::nn
