#pragma once
// States and step numbers of rules with Adam's moments.
#include <cmath>

#include "optim/rule.h"

namespace tfm::optim {

inline const ParameterGroup kAdamGroup{{"adam.m", "adam.v"}};

inline UpdateNumbers adam_numbers(const config::OptimizerConfig& o, std::int64_t update,
                                  double lr) {
  const auto t = static_cast<double>(update);
  return {
      .lr = lr, .correction1 = 1 - std::pow(o.beta1, t), .correction2 = 1 - std::pow(o.beta2, t)};
}

}  // namespace tfm::optim
