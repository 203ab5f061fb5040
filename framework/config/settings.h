#pragma once
// The keys of a configuration as dump_config() writes them, one by one.
#include <string>
#include <vector>

namespace tfm::config {

struct Setting {
  std::string key, value;
};

// "train:\n  steps: 5" as train.steps, 5.
std::vector<Setting> settings_of(const std::string& yaml);

}  // namespace tfm::config
