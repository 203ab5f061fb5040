#pragma once
// The version that every program prints; the build's project version is the same number.
#include <string_view>

namespace tfm {

inline constexpr std::string_view version = "0.1.0";

}  // namespace tfm
