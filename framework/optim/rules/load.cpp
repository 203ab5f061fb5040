// Biases of experts, which even their load without a loss (Wang et al. 2024, "Auxiliary-Loss-Free
// Load Balancing Strategy for Mixture-of-Experts"; DeepSeek-AI 2024, section 2.1.2).
#include "optim/rules/elementwise.h"

namespace tfm::optim {
namespace {

class EvenLoad final : public Rule {
 public:
  explicit EvenLoad(double rate) : rule_{rate} {}
  std::vector<ParameterGroup> groups() const override { return {}; }
  UpdateNumbers numbers(std::int64_t, double) const override { return {}; }
  void update(const Update& u) const override {
    if (std::ranges::any_of(u.shards.ranges,
                            [](const StateRange& r) { return r.group == kEvensLoad; }))
      update_elements(u, rule_, kEvensLoad);
  }
  bool element_wise() const override { return true; }
  double after(const FirstUpdate& u) const override {
    return u.weight - rule_.rate * (u.gradient > 0 ? 1 : u.gradient < 0 ? -1 : 0);
  }

 private:
  kernels::LoadRule rule_;
};

}  // namespace

std::shared_ptr<const Rule> make_load_rule(double rate) { return std::make_shared<EvenLoad>(rate); }

}  // namespace tfm::optim
