#pragma once
// The keys of a configuration one by one, as dump_config() writes them.
#include <map>
#include <string>
#include <vector>

#include "config/config.h"

namespace tfm::config {

struct Setting {
  std::string key, value;
};

// The settings of a dumped configuration: "train:\n  steps: 5" gives train.steps, 5.
std::vector<Setting> settings_of(const std::string& yaml);

std::map<std::string, std::string> values_by_key(const Config& config);

struct Change {
  std::string key, before, now;  // "unset" where one of the configurations has no such key
};
// The keys under one of `prefixes` that differ.
std::vector<Change> changes_between(const Config& before, const Config& now,
                                    const std::vector<std::string>& prefixes);
// Lists them, each with its value in `before`: "model.n_layers 2".
std::string changed_settings(const Config& before, const Config& now,
                             const std::vector<std::string>& prefixes);
// The same for the keys that determine what a model's weights mean.
std::string changed_model(const Config& before, const Config& now);

}  // namespace tfm::config
