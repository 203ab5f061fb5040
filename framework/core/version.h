#pragma once
// The project version, which every program prints.
#include <string_view>

namespace tfm {

extern const std::string_view version;

}  // namespace tfm
