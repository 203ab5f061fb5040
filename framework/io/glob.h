#pragma once
// Expands file name patterns.
#include <string>
#include <vector>

namespace tfm::io {

// The file itself, or the files that match a pattern of glob(7), sorted by name. Error(input) if
// none does.
std::vector<std::string> expand_glob(const std::string& pattern);

}  // namespace tfm::io
