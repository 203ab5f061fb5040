#include "optim/rules/registry.h"

namespace tfm::optim {
namespace {

using MakeRule = std::shared_ptr<const Rule> (*)(const config::OptimizerConfig&);

// Each at the place of its word in optimizer.type.
constexpr MakeRule kRules[] = {make_adam, make_adam,      make_sgd,
                               make_lamb, make_adafactor, make_muon};

}  // namespace

std::shared_ptr<const Rule> make_rule(const config::OptimizerConfig& config) {
  static_assert(std::size(kRules) == words(config::OptimizerType{}).size(),
                "every value of optimizer.type has a rule");
  return kRules[static_cast<std::size_t>(config.type)](config);
}

}  // namespace tfm::optim
