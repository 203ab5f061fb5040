#pragma once
// Files by pattern.
#include <string>
#include <vector>

namespace tfm::io {

// The file itself, or those that match a pattern of glob(7) in the order of their names. Throws
// Error(input) where none does.
std::vector<std::string> expand_glob(const std::string& pattern);

}  // namespace tfm::io
