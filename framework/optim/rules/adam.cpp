// Adam (Kingma & Ba 2015) and AdamW (Loshchilov & Hutter 2019), as in torch.optim.
#include "optim/rules/adam.h"

#include "optim/rules/elementwise.h"
#include "optim/rules/registry.h"

namespace tfm::optim {
namespace {

class Adam final : public Rule {
 public:
  explicit Adam(const config::OptimizerConfig& o) : config_(o) {}
  std::vector<ParameterGroup> groups() const override { return {kAdamGroup}; }
  UpdateNumbers numbers(std::int64_t update, double lr) const override {
    return adam_numbers(config_, update, lr);
  }
  void update(const Update& u) const override {
    update_elements(u, kernels::AdamRule{config_.beta1, config_.beta2, config_.eps,
                                         config_.weight_decay, decoupled()});
  }
  bool element_wise() const override { return true; }
  double after(const FirstUpdate& u) const override {
    const double g = with_decay(u, decoupled() ? 0 : config_.weight_decay);
    return u.weight * (decoupled() && u.decays ? 1 - u.lr * config_.weight_decay : 1) -
           u.lr * g / (std::abs(g) + config_.eps);
  }

 private:
  bool decoupled() const { return config_.type == config::OptimizerType::adamw; }

  config::OptimizerConfig config_;
};

}  // namespace

std::shared_ptr<const Rule> make_adam(const config::OptimizerConfig& o) {
  return std::make_shared<Adam>(o);
}

}  // namespace tfm::optim
