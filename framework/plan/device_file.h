#pragma once
// Descriptions of devices and networks: files of configs/devices and configs/networks, which are
// built into programs, and files that users write or tfm-bench measures. They are strict YAML like
// a configuration; Error(usage) lists all problems with file, line and column.
#include <string>
#include <vector>

#include "plan/device_model.h"

namespace tfm::plan {

// Loads a built-in description by name, or a file by path. The rates of a CPU are those of one
// core, see cpu_model(), and its memory_bytes may be 0: this machine's memory.
DeviceModel load_device(const std::string& name_or_path);
DeviceModel::Link load_network(const std::string& name_or_path);
DeviceModel parse_device(const std::string& text, const std::string& name);
DeviceModel::Link parse_network(const std::string& text, const std::string& name);

// The text of a description file.
std::string dump_device(const DeviceModel& device);
std::string dump_network(const std::string& name, const std::string& source,
                         const DeviceModel::Link& network);

std::vector<std::string> built_in_devices();
std::vector<std::string> built_in_networks();

// A file of configs/devices or configs/networks, compiled in (framework/cmake/descriptions.cmake).
struct Description {
  std::string_view folder, name, text;
};
const std::vector<Description>& descriptions();

}  // namespace tfm::plan
