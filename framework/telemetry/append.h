#pragma once
#include <string>
#include <string_view>

namespace tfm::telemetry {

// Appends all of `bytes` to an open file, or nothing. Returns why it could not, which begins with
// `path`; empty: it did.
std::string append(int fd, const std::string& path, std::string_view bytes);

}  // namespace tfm::telemetry
