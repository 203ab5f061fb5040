#pragma once
// Parts of the configuration reader: the field list, the presets and the rules between keys.
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

#include "config/config.h"
#include "config/reflect.h"

namespace tfm::config {

void describe_config(Config& config, FieldVisitor& visitor);
const FieldReader::Aliases& key_aliases();

// Sets the model to a preset of preset_names(); what follows from other values (d_head, 4 d_model)
// stays 0.
void apply_preset(ModelConfig& model, std::string_view name);

// A broken rule: the dotted keys involved, the likeliest culprit first, what is wrong with the
// arithmetic and the legal values, help.
using Report = std::function<void(std::vector<std::string> keys, const std::string& message,
                                  const std::string& help)>;

// Fills the values that follow from others: n_kv_heads, d_head, d_ff, max_seq_len.
void fill_derived(Config& config);
// Every rule between keys that does not depend on the number of ranks.
void check_consistency(const Config& config, const Report& report);

}  // namespace tfm::config
