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

}  // namespace tfm::config
