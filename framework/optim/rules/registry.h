#pragma once
// Factories of the rules, each defined in the rule's own file.
#include "optim/rule.h"

namespace tfm::optim {

std::shared_ptr<const Rule> make_adam(const config::OptimizerConfig& o);  // and AdamW
std::shared_ptr<const Rule> make_sgd(const config::OptimizerConfig& o);
std::shared_ptr<const Rule> make_lamb(const config::OptimizerConfig& o);
std::shared_ptr<const Rule> make_adafactor(const config::OptimizerConfig& o);
std::shared_ptr<const Rule> make_muon(const config::OptimizerConfig& o);

}  // namespace tfm::optim
