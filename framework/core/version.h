#pragma once
// The version that every program prints: the build's project version.
#include <string_view>

namespace tfm {

extern const std::string_view version;

}  // namespace tfm
