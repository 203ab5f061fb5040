#pragma once
// The keys of a configuration as dump_config() writes them, one by one.
#include <map>
#include <string>
#include <vector>

#include "config/config.h"

namespace tfm::config {

struct Setting {
  std::string key, value;
};

// "train:\n  steps: 5" as train.steps, 5.
std::vector<Setting> settings_of(const std::string& yaml);

std::map<std::string, std::string> values_by_key(const Config& config);

// "model.n_layers 2", with its value before, for each key under one of `prefixes` that differs.
std::string changed_settings(const Config& before, const Config& now,
                             const std::vector<std::string>& prefixes);
// Of the keys that say what the weights of a model mean.
std::string changed_model(const Config& before, const Config& now);

}  // namespace tfm::config
