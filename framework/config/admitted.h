#pragma once
// The admitted values of a key, for searches over configurations.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tfm::config {

// The values of a key in the form of an override: the words of an option, both values of a flag,
// or, of a number, those of `numbers` within its bounds (all within them if `numbers` is empty), in
// this order. `auto` is left out, as it stands for one of the others. `key`: dotted, of a section
// that is always there.
std::vector<std::string> admitted_values(std::string_view key,
                                         const std::vector<std::int64_t>& numbers = {});

}  // namespace tfm::config
