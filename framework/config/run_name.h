#pragma once
#include <string>
#include <string_view>

#include "config/config.h"

namespace tfm::config {

// `text` with what does not belong in a file name or a label replaced by '_': letters, digits and
// . _ - + = , remain, and the first is a letter, a digit or _. At most 128 bytes.
std::string as_run_name(std::string_view text);
// The name of a run without run.name: the last telling folder of checkpoint.dir, else of
// metrics.jsonl, else the name of the configuration file without its extension.
std::string derived_run_name(const Config& config, const std::string& file);

}  // namespace tfm::config
