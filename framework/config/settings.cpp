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

std::string changed_settings(const Config& before, const Config& now,
                             const std::vector<std::string>& prefixes) {
  const std::map<std::string, std::string> values = values_by_key(now);
  std::string all;
  for (const Setting& s : settings_of(dump_config(before))) {
    const auto found = values.find(s.key);  // none: in a section that only `before` has
    if (std::ranges::any_of(prefixes, [&](const auto& p) { return s.key.starts_with(p); }) &&
        (found == values.end() || found->second != s.value))
      all += (all.empty() ? "" : ", ") + s.key + " " + s.value;
  }
  return all;
}

std::string changed_model(const Config& before, const Config& now) {
  Config same = before;
  same.model.init = now.model.init;
  same.model.preset = now.model.preset;
  same.model.init_std = now.model.init_std;
  same.model.dropout = now.model.dropout;
  same.model.padding_idx = now.model.padding_idx;
  same.model.decoder_start = now.model.decoder_start;
  same.model.rope = now.model.rope;
  if (now.model.position != Position::learned) same.model.max_seq_len = now.model.max_seq_len;
  return changed_settings(same, now, {"model."});
}

}  // namespace tfm::config
