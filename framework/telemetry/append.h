#pragma once
#include <string>
#include <string_view>

namespace tfm::telemetry {

// Appends all of `bytes` to an open file, or nothing. Returns "", or why it failed, beginning with
// `path`.
std::string append(int fd, const std::string& path, std::string_view bytes);

}  // namespace tfm::telemetry
