#pragma once
// The configuration of mixtures of experts.
#include <cstdint>

#include "config/options.h"

namespace tfm::config {

// A mixture of experts in place of one feed-forward network.
struct ExpertsConfig {
  std::int64_t count = 0;        // 0: one network
  std::int64_t top_k = 2;        // experts that a token goes to
  std::int64_t d_ff = 0;         // of each; filled with the layer's d_ff
  std::int64_t shared = 0;       // experts that every token goes to, in one network
  std::int64_t shared_d_ff = 0;  // of that network; filled with shared * d_ff
  bool shared_gate = false;      // a sigmoid for each token weighs its result
  Router router = Router::softmax;
  bool router_bias = false;  // added to logits
  double jitter = 0;  // in training, inputs of routers times a number in [1 - jitter, 1 + jitter)
  bool normalize = true;  // the weights of a token's experts sum up to `scale`
  // A token chooses among the experts of `top_groups` of `groups` equal groups.
  std::int64_t groups = 1, top_groups = 1;
  double scale = 1;
  // Slots of an expert in a sequence: in training as a multiple of an even load, and always; 0:
  // all.
  double capacity_factor = 0;
  std::int64_t capacity = 0;
  bool operator==(const ExpertsConfig&) const = default;
};
// Which layers have experts: of those from first_dense on, every so manieth.
struct ExpertLayersConfig {
  std::int64_t first_dense = 0, every = 1;
  // No layer where `every` is out of range, as before it is checked.
  bool has(std::int64_t layer) const {
    return every > 0 && layer >= first_dense && (layer - first_dense + 1) % every == 0;
  }
  bool operator==(const ExpertLayersConfig&) const = default;
};
// What keeps the load of experts even: terms of the loss, and the update of biases.
struct RouterLossConfig {
  Balance balance = Balance::loss;
  double coefficient = 0.01;  // of the balance in the loss
  double rate = 0.001;        // of a bias in a step
  BalanceOver over = BalanceOver::sequence;
  double z = 0;  // coefficient of the z-loss; 0: none
  bool has_term() const { return balance == Balance::loss || balance == Balance::both; }
  bool has_bias() const { return balance == Balance::bias || balance == Balance::both; }
  bool balances_batch() const { return has_term() && over == BalanceOver::batch; }
  bool operator==(const RouterLossConfig&) const = default;
};

}  // namespace tfm::config
