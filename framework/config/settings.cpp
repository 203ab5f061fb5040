#include "config/settings.h"

#include <algorithm>
#include <sstream>

namespace tfm::config {

std::vector<Setting> settings_of(const std::string& yaml) {
  std::vector<Setting> all;
  std::vector<std::string> sections;
  std::istringstream lines(yaml);
  for (std::string line; std::getline(lines, line);) {
    const auto indent = line.find_first_not_of(' '), colon = line.find(':', indent);
    if (colon == std::string::npos) continue;
    sections.resize(std::min(sections.size(), indent / 2));
    std::string key;
    for (const std::string& s : sections) key += s + ".";
    const std::string name = line.substr(indent, colon - indent);
    if (colon + 1 == line.size())
      sections.push_back(name);
    else
      all.push_back({key + name, line.substr(colon + 2)});
  }
  return all;
}

std::map<std::string, std::string> values_by_key(const Config& config) {
  std::map<std::string, std::string> values;
  for (const Setting& s : settings_of(dump_config(config))) values[s.key] = s.value;
  return values;
}

std::vector<Change> changes_between(const Config& before, const Config& now,
                                    const std::vector<std::string>& prefixes) {
  std::map<std::string, std::string> values = values_by_key(now);
  std::vector<Change> changes;
  const auto add = [&](const std::string& key, const std::string& was, const std::string& is) {
    if (was != is &&
        std::ranges::any_of(prefixes, [&](const auto& p) { return key.starts_with(p); }))
      changes.push_back({key, was, is});
  };
  const std::string unset = "unset";
  for (const Setting& s : settings_of(dump_config(before))) {
    const auto found = values.extract(s.key);
    add(s.key, s.value, found ? found.mapped() : unset);
  }
  for (const auto& [key, value] : values) add(key, unset, value);
  return changes;
}

std::string changed_settings(const Config& before, const Config& now,
                             const std::vector<std::string>& prefixes) {
  std::string all;
  for (const Change& c : changes_between(before, now, prefixes))
    if (c.before != "unset") all += (all.empty() ? "" : ", ") + c.key + " " + c.before;
  return all;
}

std::string changed_model(const Config& before, const Config& now) {
  Config same = before;
  same.model.init = now.model.init;
  same.model.preset = now.model.preset;
  same.model.init_std = now.model.init_std;
  same.model.padding_idx = now.model.padding_idx;
  same.model.decoder_start = now.model.decoder_start;
  if (same.model.router_loss.has_bias() == now.model.router_loss.has_bias() ||
      now.model.layers_with_experts() == 0)
    same.model.router_loss = now.model.router_loss;
  for (HeadConfig& head : same.model.heads)
    for (const HeadConfig& other : now.model.heads)
      if (other.name == head.name) {
        head.weight = other.weight;
        head.class_weights = other.class_weights;
      }
  if (now.model.embeds()) same.model.heads = now.model.heads;  // which has no weights
  const auto take = [](LayerConfig& layer, const LayerConfig& from) {
    layer.dropout = from.dropout;
    layer.rope = from.rope;
  };
  take(same.model, now.model);
  for (LayerKind& kind : same.model.layer_kinds)
    for (const LayerKind& other : now.model.layer_kinds)
      if (other.name == kind.name) take(kind.layer, other.layer);
  if (same.model.has_head_bias() && now.model.head_bias == HeadBias::frozen)
    same.model.head_bias = HeadBias::frozen;
  if (now.model.position != Position::learned) same.model.max_seq_len = now.model.max_seq_len;
  return changed_settings(same, now, {"model."});
}

}  // namespace tfm::config
