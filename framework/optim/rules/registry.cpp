#include "optim/rules/registry.h"

#include <array>

namespace tfm::optim {
namespace {

using enum config::OptimizerType;

struct Entry {
  config::OptimizerType type;
  std::shared_ptr<const Rule> (*make)(const config::OptimizerConfig&);
};
// In the order of the types.
constexpr Entry kRules[] = {{adamw, make_adam}, {adam, make_adam},           {sgd, make_sgd},
                            {lamb, make_lamb},  {adafactor, make_adafactor}, {muon, make_muon}};

constexpr bool each_type_has_a_rule() {
  if (std::size(kRules) != words(config::OptimizerType{}).size()) return false;
  for (std::size_t i = 0; i < std::size(kRules); ++i)
    if (kRules[i].type != static_cast<config::OptimizerType>(i)) return false;
  return true;
}
static_assert(each_type_has_a_rule());

}  // namespace

std::shared_ptr<const Rule> make_rule(const config::OptimizerConfig& config) {
  return kRules[static_cast<std::size_t>(config.type)].make(config);
}

}  // namespace tfm::optim
