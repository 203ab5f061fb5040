#include "optim/rules/registry.h"

namespace tfm::optim {
std::shared_ptr<const Rule> make_rule(const config::OptimizerConfig& config) {
  switch (config.type) {
    case config::OptimizerType::adam:
    case config::OptimizerType::adamw:
      return make_adam(config);
    case config::OptimizerType::sgd:
      return make_sgd(config);
    case config::OptimizerType::lamb:
      return make_lamb(config);
    case config::OptimizerType::adafactor:
      return make_adafactor(config);
    case config::OptimizerType::muon:
      return make_muon(config);
  }
  internal_error("unhandled enum value");
}

}  // namespace tfm::optim
