#pragma once
// Helpers for the rules between keys.
#include <functional>
#include <string>
#include <vector>

#include "config/model_config.h"

namespace tfm::config {

std::vector<std::int64_t> divisors(std::int64_t n);
// Lists at most twelve of `values`, those nearest to `around`.
std::string listed(std::vector<std::int64_t> values, std::int64_t around);

// Reports `key` if it is given where it does not fit.
using Only = std::function<void(bool given, bool fits, const std::string& key,
                                const std::string& where, const std::string& instead)>;

Only only_with(const Report& report);

// The rules of a layer of the model, whose keys are behind `path` ("model.").
void check_layer(const LayerConfig& layer, const std::string& path, const ModelConfig& model,
                 const Report& report);

}  // namespace tfm::config
