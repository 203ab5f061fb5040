#pragma once
// The values that a key may have, for a search over configurations.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tfm::config {

// Of an option its words, of a flag both values, of a number those of `numbers` within its bounds
// (`numbers` empty: all within them), in this order, as an override gives them. `auto` is left out:
// it stands for one of the others. The key is dotted, of a section that is always there.
std::vector<std::string> admitted_values(std::string_view key,
                                         const std::vector<std::int64_t>& numbers = {});

}  // namespace tfm::config
