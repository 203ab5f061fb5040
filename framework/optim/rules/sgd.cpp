// Stochastic gradient descent, with momentum as in torch.optim.SGD.
#include "optim/rules/elementwise.h"
#include "optim/rules/registry.h"

namespace tfm::optim {
namespace {

class Sgd final : public Rule {
 public:
  explicit Sgd(const config::OptimizerConfig& o) : rule_{o.momentum, o.weight_decay} {}
  std::vector<ParameterGroup> groups() const override {
    return {rule_.momentum > 0 ? ParameterGroup{{"momentum"}} : ParameterGroup{}};
  }
  UpdateNumbers numbers(std::int64_t, double lr) const override { return {.lr = lr}; }
  void update(const Update& u) const override { update_elements(u, rule_); }
  bool element_wise() const override { return true; }
  double after(const FirstUpdate& u) const override {
    return u.weight - u.lr * with_decay(u, rule_.decay);
  }

 private:
  kernels::SgdRule rule_;
};

}  // namespace

std::shared_ptr<const Rule> make_sgd(const config::OptimizerConfig& o) {
  return std::make_shared<Sgd>(o);
}

}  // namespace tfm::optim
